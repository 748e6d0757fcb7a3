//! Gives the gateway more than it may want: a long body, many fields, long
//! values, many log lines.

use weir_sdk::prelude::*;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct BigOutput {
    /// Bytes of the body of its answer; without it it does not answer.
    body: Option<usize>,
    /// Fields that it sets, on its answer or the request.
    fields: usize,
    /// Bytes of the value of each.
    value: usize,
    /// Lines that it logs.
    log_lines: usize,
    /// Bytes of each.
    log_line: usize,
    /// Attributes that it sets, with values as long as those of fields.
    attributes: usize,
}

impl Default for BigOutput {
    fn default() -> Self {
        Self { body: None, fields: 0, value: 1, log_lines: 0, log_line: 1, attributes: 0 }
    }
}

impl Plugin for BigOutput {
    type Config = Self;

    fn new(config: Self) -> Result<Self, Vec<Problem>> {
        Ok(config)
    }

    fn phases(&self) -> Phases {
        Phases::REQUEST
    }

    fn on_request(&self, request: &mut Request) -> Outcome {
        let line = "l".repeat(self.log_line);
        for _ in 0..self.log_lines {
            weir_sdk::info!("{line}");
        }
        let value = "v".repeat(self.value);
        for i in 0..self.attributes {
            request.set_attribute(&format!("big-output.{i}"), Some(value.as_bytes()))?;
        }
        let names: Vec<String> = (0..self.fields).map(|i| format!("x-big-{i}")).collect();
        if let Some(body) = self.body {
            let headers: Vec<Field> = names.iter().map(|name| Field::new(name, &value)).collect();
            return request.respond(200, &headers, vec![b'b'; body]);
        }
        let edits: Vec<Edit> = names.iter().map(|name| Edit::set(name, &value)).collect();
        request.edit(&edits)?;
        Ok(Action::Continue)
    }
}

weir_sdk::export!(BigOutput, name = "big-output");
