//! Bytes as the agent in a guest reads and writes them.

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from_digit(n.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16);
    text.as_bytes().chunks(2).map(|c| Some((digit(c[0])? << 4 | digit(*c.get(1)?)?) as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_there_and_back() {
        assert_eq!(to_hex(&[0, 0x1f, 0xa5]), "001fa5");
        assert_eq!(from_hex("001fa5"), Some(vec![0, 0x1f, 0xa5]));
        assert_eq!((from_hex("0"), from_hex("zz")), (None, None));
    }
}
