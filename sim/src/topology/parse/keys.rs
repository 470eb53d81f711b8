//! The keys of one table of a file: those that are known there, and values that a key takes.

use std::fmt::Display;

use toml::{Table, Value};

use super::TopologyError;

/// The keys of one table, and what to call it.
pub(super) struct Keys<'a> {
    place: String,
    pub(super) table: &'a Table,
}

impl<'a> Keys<'a> {
    pub(super) fn new(place: String, table: &'a Table, known: &[&str]) -> Result<Keys<'a>, TopologyError> {
        match table.keys().find(|k| !known.contains(&k.as_str())) {
            Some(key) => Err(TopologyError::UnknownKey { place, key: key.clone(), known: known.join(", ") }),
            None => Ok(Keys { place, table }),
        }
    }

    pub(super) fn error(&self, key: &'static str, why: impl Into<String>) -> TopologyError {
        TopologyError::Key { place: self.place.clone(), key, why: why.into() }
    }

    /// A value that is written as text.
    pub(super) fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        // A size may be a bare number.
        let text = v.as_str().map(str::to_owned).or_else(|| v.as_integer().map(|n| n.to_string()));
        let text = text.ok_or_else(|| self.error(key, "write it in quotes"))?;
        parse(&text).map(Some).map_err(|e| self.error(key, e.to_string()))
    }

    pub(super) fn integer(
        &self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        let found = v.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n));
        let why = || format!("a whole number from {} to {}", range.start(), range.end());
        found.map(Some).ok_or_else(|| self.error(key, why()))
    }

    pub(super) fn boolean(&self, key: &'static str) -> Result<Option<bool>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        v.as_bool().map(Some).ok_or_else(|| self.error(key, "true or false"))
    }

    /// Names, in quotes between brackets.
    pub(super) fn names(&self, key: &'static str) -> Option<Vec<&'a str>> {
        self.table.get(key)?.as_array()?.iter().map(Value::as_str).collect()
    }

    pub(super) fn choice<T: Copy>(&self, key: &'static str, of: &[(&str, T)]) -> Result<Option<T>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        let found = of.iter().find(|(name, _)| v.as_str() == Some(name)).map(|(_, value)| *value);
        let names = || of.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| self.error(key, format!("one of {}", names())))
    }

    pub(super) fn tables(&self, key: &'static str) -> Result<Vec<&'a Table>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(Vec::new()) };
        let list = v.as_array().and_then(|a| a.iter().map(Value::as_table).collect());
        list.ok_or_else(|| self.error(key, format!("each begins with a line [[{key}]], in two brackets")))
    }
}
