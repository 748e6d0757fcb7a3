//! The embedded demo upstream: it answers with what it was sent.

use std::{collections::BTreeMap, future::poll_fn, pin::Pin, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body;
use serde::Serialize;

use super::{OutgoingHead, ResponseBody};
use crate::{
    error::{ErrorKind, GatewayError},
    headers,
};

/// Bytes of a body that are shown; of a longer one only the length.
const SHOWN: usize = 64 << 10;

#[derive(Serialize)]
struct Echo<'a> {
    method: &'a str,
    path: &'a str,
    headers: BTreeMap<&'a str, Field>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_length: Option<u64>,
}

/// The value of a field, or all values of one that is repeated.
#[derive(Serialize)]
#[serde(untagged)]
enum Field {
    One(String),
    Many(Vec<String>),
}

/// Reads the whole request and describes it.
pub async fn answer<B>(head: OutgoingHead<'_>, body: B, name: &Arc<str>) -> Result<Response<ResponseBody>, GatewayError>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    let (body, length) = read(body).await?;
    let headers = sent(&head);
    let shown = length <= SHOWN as u64;
    let echo = Echo {
        method: head.method.as_str(),
        path: head.target.as_str(),
        headers: fields(&headers),
        body: shown.then(|| String::from_utf8_lossy(&body).into_owned()),
        body_length: (!shown).then_some(length),
    };
    let mut text =
        serde_json::to_vec_pretty(&echo).map_err(|error| GatewayError::because(ErrorKind::Internal, error))?;
    text.push(b'\n');
    let mut response = Response::new(ResponseBody::whole(text.into(), name.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The start of a body and the length of all of it.
async fn read<B>(mut body: B) -> Result<(BytesMut, u64), GatewayError>
where
    B: Body<Data = Bytes, Error = GatewayError> + Unpin,
{
    let (mut start, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            length += data.len() as u64;
            let room = SHOWN - start.len();
            start.extend_from_slice(data.get(..room).unwrap_or(&data));
        }
    }
    Ok((start, length))
}

/// All fields that a target would get.
fn sent(head: &OutgoingHead<'_>) -> HeaderMap {
    let mut headers = head.headers.clone();
    if let Some((client, host)) = head.forwarded_for {
        headers::add_forwarded(&mut headers, client, host);
    }
    headers
}

fn fields(headers: &HeaderMap) -> BTreeMap<&str, Field> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let field = |name| {
        let mut values: Vec<String> = headers.get_all(name).iter().map(text).collect();
        match values.pop() {
            Some(only) if values.is_empty() => Field::One(only),
            last => {
                values.extend(last);
                Field::Many(values)
            }
        }
    };
    headers.keys().map(|name| (name.as_str(), field(name))).collect()
}
