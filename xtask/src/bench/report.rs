//! Evaluates samples: medians, ratios and whether a target is met. Pure; prints nothing.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// At most this many units.
    AtMost(f64),
    /// At most this fraction of what the other binary takes.
    Share(f64),
    /// No target.
    Open,
}

/// One value of one scenario, sampled for our binary and possibly for another.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) scenario: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) target: Target,
    pub(crate) ours: Vec<f64>,
    pub(crate) theirs: Vec<f64>,
}

impl Measured {
    /// Returns the heading for [`Measured::row`].
    pub(crate) fn heading() -> Vec<String> {
        ["scenario", "number", "ours", "min", "theirs", "min", "ratio", "target", ""]
            .map(str::to_owned)
            .to_vec()
    }

    /// Formats a row for the terminal.
    pub(crate) fn row(&self) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), short);
        let target = match self.target {
            Target::AtMost(limit) => format!("<= {} {}", short(limit), self.unit),
            Target::Share(limit) => format!("<= {limit} x"),
            Target::Open => String::new(),
        };
        vec![
            self.scenario.to_owned(),
            format!("{} {}", self.metric, self.unit),
            number(median(&self.ours)),
            number(min(&self.ours)),
            number(median(&self.theirs)),
            number(min(&self.theirs)),
            self.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.3} x")),
            target,
            self.verdict().unwrap_or_default().to_owned(),
        ]
    }

    /// Returns the same as a JSON object.
    pub(crate) fn json(&self) -> Value {
        let (at_most, share) = match self.target {
            Target::AtMost(limit) => (Some(limit), None),
            Target::Share(limit) => (None, Some(limit)),
            Target::Open => (None, None),
        };
        json!({
            "scenario": self.scenario,
            "metric": self.metric,
            "unit": self.unit,
            "runs": self.ours.len(),
            "ours": { "median": median(&self.ours), "min": min(&self.ours) },
            "theirs": { "median": median(&self.theirs), "min": min(&self.theirs) },
            "ratio": self.ratio(),
            "target": { "at_most": at_most, "ratio_at_most": share },
            "verdict": self.verdict(),
        })
    }

    /// Returns the ratio of our median to theirs.
    fn ratio(&self) -> Option<f64> {
        let theirs = median(&self.theirs).filter(|theirs| *theirs > 0.0)?;
        Some(median(&self.ours)? / theirs)
    }

    fn verdict(&self) -> Option<&'static str> {
        let met = match self.target {
            Target::AtMost(limit) => median(&self.ours)? <= limit,
            Target::Share(limit) => self.ratio()? <= limit,
            Target::Open => return None,
        };
        Some(if met { "pass" } else { "miss" })
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(sorted[middle - 1].midpoint(sorted[middle])),
    }
}

fn min(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

/// Three digits are all that a noisy machine can support.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ours: &[f64], theirs: &[f64], target: Target, want: &str) {
        let measured = Measured {
            scenario: "s",
            metric: "wall",
            unit: "ms",
            target,
            ours: ours.to_vec(),
            theirs: theirs.to_vec(),
        };
        assert_eq!(measured.row().join("|"), format!("s|wall ms|{want}"));
        assert_eq!(measured.row().len(), Measured::heading().len());
    }

    #[test]
    fn rows() {
        check(&[3.0, 1.0, 2.0], &[], Target::Open, "2.00|1.00|-|-|-||");
        check(&[4.0, 1.0], &[], Target::AtMost(3.0), "2.50|1.00|-|-|-|<= 3.00 ms|pass");
        check(&[4.0], &[], Target::AtMost(3.0), "4.00|4.00|-|-|-|<= 3.00 ms|miss");
        check(&[10.0], &[], Target::Share(0.5), "10.0|10.0|-|-|-|<= 0.5 x|");
        check(&[10.0], &[100.0], Target::Share(0.1), "10.0|10.0|100|100|0.100 x|<= 0.1 x|pass");
        check(&[11.0], &[100.0], Target::Share(0.1), "11.0|11.0|100|100|0.110 x|<= 0.1 x|miss");
        check(&[], &[0.0], Target::Share(0.1), "-|-|0.00|0.00|-|<= 0.1 x|");
    }

    #[test]
    fn objects() {
        let measured = Measured {
            scenario: "s",
            metric: "wall",
            unit: "ms",
            target: Target::Share(0.5),
            ours: vec![1.0],
            theirs: vec![4.0],
        };
        let json = measured.json();
        assert_eq!((&json["ratio"], &json["verdict"]), (&json!(0.25), &json!("pass")));
        assert_eq!(json["target"], json!({ "at_most": null, "ratio_at_most": 0.5 }));
    }
}
