//! What somebody wrote, as it is shown in a message.

/// With control characters written as escapes: a message is one line, whatever it quotes.
pub fn on_one_line(s: &str) -> String {
    let mut line = String::with_capacity(s.len());
    for c in s.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use crate::{Script, Spec};

    #[test]
    fn an_error_is_one_line_even_where_what_it_quotes_is_several() {
        let said = |spec: &str| spec.parse::<Spec>().unwrap_err().to_string();
        assert!(said("lo\nss").starts_with(r"'lo\nss' is no fault"));
        assert!(said("lo\nss=1").starts_with(r"there is no fault 'lo\nss'"));
        assert!(said("loss=1\n2").starts_with(r"'1\n2' is no value for loss"));
        assert!(said("@no\nfile").starts_with(r"no\nfile: "));
        let said = |script: &str| Script::parse(script).unwrap_err().to_string();
        assert!(said("\"a\\nb\" = 1").starts_with(r"there is no 'a\nb' in a script"));
        assert!(said("[[event]]\n\"a\\nb\" = 1").starts_with(r"event 1: there is no key 'a\nb'"));
    }
}
