//! The Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write};

use super::series::{BOUNDS, Bounds, Histogram};

/// Content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What one metric is.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub help: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Label names and values.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// A page of metrics as it grows. What is written to a String can't fail, which
/// is why results are dropped here.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Starts a metric; its samples follow.
    pub fn begin(&mut self, metric: &Metric) {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let Metric { name, help, .. } = metric;
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, metric: &Metric, labels: Labels, value: impl Display) {
        self.line(metric.name, "", labels, None, value);
    }

    pub fn histogram(&mut self, metric: &Metric, labels: Labels, times: &Times) {
        let mut count = 0;
        for (class, more) in times.classes.iter().enumerate() {
            count += more;
            match times.bounds.limits.get(class) {
                Some(limit) => self.line(metric.name, "_bucket", labels, Some(&Seconds(*limit)), count),
                None => self.line(metric.name, "_bucket", labels, Some(&"+Inf"), count),
            }
        }
        self.line(metric.name, "_sum", labels, None, Seconds(times.sum));
        self.line(metric.name, "_count", labels, None, count);
    }

    pub fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, name: &str, suffix: &str, labels: Labels, bound: Option<&dyn Display>, value: impl Display) {
        self.0.push_str(name);
        self.0.push_str(suffix);
        let mut separator = '{';
        for (label, text) in labels {
            let _ = write!(self.0, "{separator}{label}=\"");
            self.escape(text);
            self.0.push('"');
            separator = ',';
        }
        if let Some(bound) = bound {
            let _ = write!(self.0, "{separator}le=\"{bound}\"");
            separator = ',';
        }
        if separator == ',' {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn escape(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }
}

/// Nanoseconds, written as seconds in exact decimals.
#[derive(Debug)]
pub struct Seconds(pub u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:09}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

/// Histograms of several workers, added up.
#[derive(Debug)]
pub struct Times {
    bounds: &'static Bounds,
    classes: [u64; BOUNDS + 1],
    pub sum: u64,
}

impl Times {
    pub fn new<'a>(bounds: &'static Bounds, histograms: impl Iterator<Item = &'a Histogram>) -> Self {
        let mut times = Self { bounds, classes: [0; BOUNDS + 1], sum: 0 };
        for histogram in histograms {
            for (sum, class) in times.classes.iter_mut().zip(&histogram.classes) {
                *sum += class.get();
            }
            times.sum += histogram.sum.get();
        }
        times
    }

    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}
