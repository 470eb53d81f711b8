//! Text of other processes, made safe to print.

/// Text of another process as a terminal may have it, and as JSON may: control characters are escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out += &format!("\\u{:04x}", c as u32),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_another_process_do_not_reach_the_terminal() {
        assert_eq!(plain("eth0 \u{1b}[2J\u{9b}31m\n\u{7f}é"), "eth0 \\u001b[2J\\u009b31m\\u000a\\u007fé");
    }
}
