//! The layouts that verbs/ holds itself to, held against the installed headers.
//!
//! In verbs/ a `layout!` names a struct's size and its fields' offsets, which the compiler checks. Here the same numbers are read from
//! the source and looked up in what `offsets.c` printed, which has them from the headers. So the two sides agree, and nothing is
//! written down twice.

use std::collections::HashMap;

/// Where fields have another name, or lie in a struct of another shape.
const NAMES: [(&str, &str); 7] = [
    ("ibv_mw.kind", "ibv_mw.type"),
    ("ibv_cq_ex.readers", "ibv_cq_ex.start_poll"),
    ("ibv_send_wr.wr", "ibv_send_wr.wr.rdma.remote_addr"),
    ("ibv_send_wr.xrc_remote_srqn", "ibv_send_wr.qp_type.xrc.remote_srqn"),
    ("ibv_send_wr.bind_mw", "ibv_send_wr.bind_mw.mw"),
    ("BuilderTable.wr_id", "ibv_qp_ex.wr_id"),
    ("BuilderTable.wr_flags", "ibv_qp_ex.wr_flags"),
];
/// The part of `struct ibv_qp_ex` that is behind `struct ibv_qp`.
const BUILDER_AT: i64 = 160;
/// Structs that grow from release to release: programs say how long theirs is, or only ever use what they know.
const GROWING: [&str; 3] = ["ibv_port_attr", "BuilderTable", "verbs_context"];
/// What only newer headers have.
const NEWER: [&str; 2] = ["ibv_port_attr.active_speed_ex", "ibv_mr_init_attr"];

/// A struct as verbs/ has it.
#[derive(Debug, PartialEq, Eq)]
struct Layout {
    name: String,
    size: i64,
    fields: Vec<(String, i64)>,
}

/// How many numbers agree; the first that does not is an error.
pub(super) fn compare(sources: &str, printed: &str) -> Result<usize, String> {
    let header = header(printed)?;
    let layouts = layouts(sources)?;
    let mut agree = 0;
    for Layout { name, size, fields } in &layouts {
        if !GROWING.contains(&name.as_str()) && !is_newer(name, &header) {
            let there = header.get(name.as_str()).ok_or_else(|| format!("the header has no struct {name}"))?;
            if there != size {
                return Err(format!("struct {name} has {size} bytes in verbs/ and {there} in the header"));
            }
            agree += 1;
        }
        for (field, at) in fields {
            let ours = format!("{name}.{field}");
            let (theirs, at) = translate(name, field, *at, *size);
            if is_newer(&ours, &header) || is_newer(name, &header) {
                continue;
            }
            let there =
                header.get(theirs.as_str()).ok_or_else(|| format!("the header has no {theirs} (ours: {ours})"))?;
            if *there != at {
                return Err(format!("{ours} is at {at} in verbs/ and at {there} in the header"));
            }
            agree += 1;
        }
    }
    Ok(agree)
}

fn is_newer(name: &str, header: &HashMap<&str, i64>) -> bool {
    NEWER.contains(&name) && !header.contains_key(name)
}

/// A field as the header calls it, and where it lies there.
fn translate(name: &str, field: &str, at: i64, size: i64) -> (String, i64) {
    let ours = format!("{name}.{field}");
    let known = NAMES.iter().find(|(from, _)| *from == ours).map(|(_, to)| (*to).to_string());
    match name {
        "BuilderTable" => (known.unwrap_or_else(|| format!("ibv_qp_ex.wr_{field}")), at + BUILDER_AT),
        // Its distance from the end.
        "verbs_context" => (known.unwrap_or(ours), at - size),
        _ => (known.unwrap_or(ours), at),
    }
}

/// `struct.field offset size` and `struct - size`.
fn header(printed: &str) -> Result<HashMap<&str, i64>, String> {
    printed
        .lines()
        .map(|line| {
            let wrong = || format!("offsets.c printed `{line}`");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [name, "-", size] => Ok((name, size.parse().map_err(|_| wrong())?)),
                [name, at, _] => Ok((name, at.parse().map_err(|_| wrong())?)),
                _ => Err(wrong()),
            }
        })
        .collect()
}

/// All `layout!` of a source.
fn layouts(source: &str) -> Result<Vec<Layout>, String> {
    let mut found = Vec::new();
    for text in source.split("\nlayout!(").skip(1) {
        let Some((text, _)) = text.split_once(");") else { return Err("a layout! that does not end".into()) };
        let mut parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let (name, size) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let size = value(size, 0).ok_or_else(|| format!("layout!({name}): what is `{size}`?"))?;
        let mut fields = Vec::new();
        for part in parts {
            let wrong = || format!("layout!({name}): what is `{part}`?");
            let (field, at) = part.split_once(' ').ok_or_else(wrong)?;
            fields.push((field.into(), value(at, size).ok_or_else(wrong)?));
        }
        found.push(Layout { name: name.into(), size, fields });
    }
    if found.is_empty() { Err("verbs/ has no layout!".into()) } else { Ok(found) }
}

/// A number, or a difference of two; END is the size of the struct.
fn value(text: &str, end: i64) -> Option<i64> {
    let one = |text: &str| if text.trim() == "END" { Some(end) } else { text.trim().parse().ok() };
    match text.split_once(" - ") {
        Some((a, b)) => Some(one(a)? - one(b)?),
        None => one(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "\nlayout!(ibv_pd, 16, handle 8);\nlayout!(verbs_context, 648, sz END - 336,\n    context END - 328);\n";
    const PRINTED: &str = "ibv_pd - 16\nibv_pd.handle 8 4\nverbs_context.sz -336 8\nverbs_context.context -328 328\n";

    #[test]
    fn numbers_that_differ_are_found() {
        assert_eq!(compare(SOURCE, PRINTED), Ok(4));
        for (from, to) in [("handle 8 4", "handle 12 4"), ("- 16", "- 24"), ("-336", "-344")] {
            assert!(compare(SOURCE, &PRINTED.replace(from, to)).is_err(), "{from} became {to}");
        }
        assert!(compare(SOURCE, "ibv_pd - 16\n").is_err(), "a field is not there");
        assert!(compare("", PRINTED).is_err());
    }
}
