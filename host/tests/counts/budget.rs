//! `budget.toml`: what a request may cost.

use std::{collections::HashMap, fs, path::Path};

use crate::measure::Counts;

/// What is too much: over the budget by more than this part of it.
const TOLERANCE: f64 = 0.05;

pub struct Budget(HashMap<String, HashMap<String, f64>>);

impl Budget {
    pub fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/budget.toml");
        Self::parse(&fs::read_to_string(path).unwrap())
    }

    pub fn parse(text: &str) -> Self {
        Self(toml::from_str(text).unwrap())
    }

    /// What is over the budget of a scenario, a line for each.
    pub fn compare(&self, scenario: &str, counted: Counts) -> Vec<String> {
        let Some(budget) = self.0.get(scenario) else { return vec![format!("{scenario}: has no budget")] };
        let counts = [
            ("instructions", counted.instructions),
            ("allocations", counted.allocations),
            ("system_calls", counted.system_calls),
        ];
        let over = |&(what, count): &(&str, f64)| count > budget[what] * (1.0 + TOLERANCE);
        let told = |(what, count): (&str, f64)| format!("{scenario}: {count} {what}, budget {}", budget[what]);
        counts.into_iter().filter(over).map(told).collect()
    }
}
