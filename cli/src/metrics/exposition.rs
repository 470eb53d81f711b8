//! The text format of Prometheus, version 0.0.4: families of samples with HELP and TYPE.

use std::fmt::Write as _;

/// What a family of samples is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// Names and values of a sample's labels.
pub(crate) type Labels<'a> = [(&'static str, &'a str)];

struct Family {
    name: String,
    help: String,
    kind: Kind,
    samples: Vec<String>,
}

/// All families of an answer. The samples of one family stand together, as the format asks for.
#[derive(Default)]
pub(crate) struct Page {
    families: Vec<Family>,
}

impl Page {
    /// Adds a sample.
    pub(crate) fn add(&mut self, name: &str, kind: Kind, help: &str, labels: &Labels<'_>, value: u64) {
        let place = self.families.iter().position(|family| family.name == name).unwrap_or_else(|| {
            self.families.push(Family { name: name.into(), help: help.into(), kind, samples: Vec::new() });
            self.families.len() - 1
        });
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.families[place].samples.push(format!("{labels} {value}"));
    }

    /// The text.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for Family { name, help, kind, samples } in &self.families {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            // Writing to a string does not fail.
            let _ = write!(
                out,
                "# HELP {name} {}\n# TYPE {name} {kind}\n",
                help.replace('\\', "\\\\").replace('\n', "\\n")
            );
            for sample in samples {
                let _ = writeln!(out, "{name}{sample}");
            }
        }
        out
    }
}

/// The value of a label: anything may be in the name of an interface or a socket.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::strict;
    use super::*;

    #[test]
    fn families_stand_together_and_any_label_can_be_read() {
        let mut page = Page::default();
        page.add("a_total", Kind::Counter, "how many \\ of\nthem", &[("device", "x\"y\\z\n")], 7);
        page.add("b", Kind::Gauge, "now", &[], 0);
        page.add("a_total", Kind::Counter, "how many", &[("device", "other"), ("port", "1")], u64::MAX);
        let families = strict::parse(&page.text()).unwrap();
        assert_eq!(families.len(), 2);
        let a = &families["a_total"];
        assert_eq!((a.kind.as_str(), a.help.as_str()), ("counter", "how many \\ of\nthem"));
        assert_eq!(a.samples[0].labels, [("device".to_string(), "x\"y\\z\n".to_string())]);
        assert_eq!((a.samples[0].value, a.samples[1].value), (7.0, u64::MAX as f64));
        assert_eq!(families["b"].kind, "gauge");
    }
}
