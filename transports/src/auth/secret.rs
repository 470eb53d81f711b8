//! The secret shared by both ends of authenticated connections.

use std::fmt;
use std::sync::Arc;

/// A shared secret. Clones refer to one copy of the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

/// Why bytes cannot be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Too few bytes: all values could be tried.
    #[error("a secret has at least {min} bytes, not {0}", min = Secret::MIN)]
    Short(usize),
    /// Too many bytes.
    #[error("a secret has at most {max} bytes, not {0}", max = Secret::MAX)]
    Long(usize),
}

impl Secret {
    /// The minimum length of a secret in bytes.
    pub const MIN: usize = 16;
    /// The maximum length of a secret in bytes.
    pub const MAX: usize = 4096;

    /// Creates a secret from these bytes.
    ///
    /// # Errors
    /// When there are too few or too many bytes.
    pub fn new(bytes: &[u8]) -> Result<Secret, SecretError> {
        match bytes.len() {
            n if n < Secret::MIN => Err(SecretError::Short(n)),
            n if n > Secret::MAX => Err(SecretError::Long(n)),
            _ => Ok(Secret(bytes.into())),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Prints none of the bytes.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_16_to_4096_bytes_and_is_not_shown() {
        assert_eq!(Secret::new(&[7; 15]), Err(SecretError::Short(15)));
        assert_eq!(Secret::new(&[7; 4097]), Err(SecretError::Long(4097)));
        assert_eq!(
            format!("{:?}", [Secret::new(&[7; 16]).unwrap(), Secret::new(&[7; 4096]).unwrap()]),
            "[Secret, Secret]"
        );
    }
}
