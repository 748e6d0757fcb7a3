//! The same benchmark plugin as ../proxy-wasm-keyauth, against the http-wasm
//! handler ABI (imports written by hand, no SDK). Same configuration text.
use std::collections::HashMap;
use std::time::{Duration, Instant};

#[link(wasm_import_module = "http_handler")]
extern "C" {
    fn get_config(buf: *mut u8, limit: u32) -> u32;
    fn get_header_values(kind: u32, name: *const u8, name_len: u32, buf: *mut u8, limit: u32) -> u64;
    fn set_header_value(kind: u32, name: *const u8, name_len: u32, value: *const u8, value_len: u32);
    fn set_status_code(code: u32);
}

const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;

struct Bucket {
    tokens: f64,
    last: Instant,
}

struct State {
    noop: bool,
    rate: f64,
    burst: f64,
    buckets: HashMap<Vec<u8>, Bucket>,
}

// A guest instance serves one request at a time, so plain statics are enough.
static mut STATE: Option<State> = None;
static mut BUF: [u8; 2048] = [0; 2048];

fn load() -> State {
    let mut raw = vec![0u8; 65536];
    let n = unsafe { get_config(raw.as_mut_ptr(), raw.len() as u32) } as usize;
    // The host hands the configuration over as JSON: {"text":"..."}.
    let all = String::from_utf8_lossy(&raw[..n.min(raw.len())]).into_owned();
    let text = all
        .split_once("\"text\":\"")
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(t, _)| t.replace("\\n", "\n"))
        .unwrap_or_default();
    let mut lines = text.lines();
    let noop = lines.next() == Some("noop");
    let rate = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    let burst = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    let last = Instant::now();
    let buckets = lines.map(|k| (k.as_bytes().to_vec(), Bucket { tokens: burst, last })).collect();
    State { noop, rate, burst, buckets }
}

#[no_mangle]
pub extern "C" fn handle_request() -> u64 {
    let state = unsafe { (*(&raw mut STATE)).get_or_insert_with(load) };
    if state.noop {
        return 1;
    }
    let name = b"x-api-key";
    let buf = unsafe { &mut *(&raw mut BUF) };
    let ret =
        unsafe { get_header_values(REQUEST, name.as_ptr(), name.len() as u32, buf.as_mut_ptr(), buf.len() as u32) };
    let (count, len) = ((ret >> 32) as usize, (ret & 0xffff_ffff) as usize);
    // Values come NUL-terminated.
    let key = if count == 1 && len >= 1 && len <= buf.len() { &buf[..len - 1] } else { &[][..] };
    let status = match state.buckets.get_mut(key) {
        None => 401,
        Some(b) => {
            let now = Instant::now();
            let dt = now.checked_duration_since(b.last).unwrap_or(Duration::ZERO);
            b.tokens = (b.tokens + dt.as_secs_f64() * state.rate).min(state.burst);
            b.last = now;
            if b.tokens < 1.0 {
                429
            } else {
                b.tokens -= 1.0;
                0
            }
        }
    };
    if status != 0 {
        unsafe { set_status_code(status) };
        return 0;
    }
    unsafe { set_header_value(RESPONSE, b"x-plugin".as_ptr(), 8, b"1".as_ptr(), 1) };
    1
}

#[no_mangle]
pub extern "C" fn handle_response(_req_ctx: u32, _is_error: u32) {}
