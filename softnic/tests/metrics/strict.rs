//! A strict reader of Prometheus' text format: everything that promtool complains about is an error.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) help: String,
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

fn is_name(s: &str) -> bool {
    let first = s.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn unescaped(s: &str, with_quotes: bool) -> Result<String, String> {
    let (mut out, mut chars) = (String::new(), s.chars());
    while let Some(c) = chars.next() {
        out.push(match (c, with_quotes) {
            ('\\', _) => match chars.next() {
                Some('\\') => '\\',
                Some('n') => '\n',
                Some('"') if with_quotes => '"',
                other => return Err(format!("an escape {other:?} in {s}")),
            },
            ('"', true) => return Err(format!("a quote in {s}")),
            (c, _) => c,
        });
    }
    Ok(out)
}

fn labels(mut text: &str) -> Result<Vec<(String, String)>, String> {
    let mut all: Vec<(String, String)> = Vec::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").ok_or_else(|| format!("no label in {text}"))?;
        let mut end = None;
        let mut escaped = false;
        for (at, c) in rest.char_indices() {
            match c {
                '"' if !escaped => {
                    end = Some(at);
                    break;
                }
                _ => escaped = c == '\\' && !escaped,
            }
        }
        let end = end.ok_or_else(|| format!("no end of a value in {rest}"))?;
        if !is_name(name) || all.iter().any(|(other, _)| other == name) {
            return Err(format!("a label {name:?}, or twice"));
        }
        all.push((name.into(), unescaped(&rest[..end], true)?));
        text = &rest[end + 1..];
        if !text.is_empty() {
            text =
                text.strip_prefix(',').filter(|rest| !rest.is_empty()).ok_or_else(|| format!("no comma at {text}"))?;
        }
    }
    Ok(all)
}

/// All families by name. HELP, then TYPE, then samples, each family once; counters end with `_total`, nothing else does; no sample twice.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<String, Family>, String> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current: Option<String> = None;
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".into());
    }
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or_else(|| format!("no help: {line}"))?;
            if !is_name(name) || help.is_empty() || families.contains_key(name) {
                return Err(format!("a family {name:?} twice, or without help"));
            }
            families.insert(name.into(), Family { help: unescaped(help, false)?, ..Family::default() });
            current = Some(name.into());
            continue;
        }
        let name = current.clone().ok_or_else(|| format!("before any HELP: {line}"))?;
        let family = families.get_mut(&name).ok_or("no family")?;
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (of, kind) = rest.split_once(' ').ok_or_else(|| format!("no type: {line}"))?;
            let counter = kind == "counter";
            if of != name || !family.kind.is_empty() || !["counter", "gauge"].contains(&kind) {
                return Err(format!("a type out of place: {line}"));
            }
            if counter != name.ends_with("_total") {
                return Err(format!("{name} is a {kind}"));
            }
            family.kind = kind.into();
            continue;
        }
        if family.kind.is_empty() {
            return Err(format!("no type before {line}"));
        }
        let rest = line.strip_prefix(&name).ok_or_else(|| format!("{line} among those of {name}"))?;
        let (own, value) = rest.rsplit_once(' ').ok_or_else(|| format!("no value: {line}"))?;
        let labels = match own {
            "" => Vec::new(),
            own => labels(
                own.strip_prefix('{').and_then(|l| l.strip_suffix('}')).ok_or_else(|| format!("labels: {line}"))?,
            )?,
        };
        if family.samples.iter().any(|sample| sample.labels == labels) {
            return Err(format!("twice: {line}"));
        }
        let value = value.parse().map_err(|_| format!("a value {value:?}"))?;
        family.samples.push(Sample { labels, value });
    }
    match families.iter().find(|(_, family)| family.samples.is_empty()) {
        Some((name, _)) => Err(format!("{name} has no samples")),
        None => Ok(families),
    }
}
