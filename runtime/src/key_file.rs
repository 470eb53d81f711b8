//! Files that hold the secret of authenticated connections: readable by their owner alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use softnic_nic::transports::{Secret, SecretError};

/// Why a file gives no secret.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read.
    #[error("cannot read the key file {path}: {error}", path = .path.display())]
    Read {
        /// Its name.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others than its owner may use it.
    #[error("others may use the key file {path} (mode {mode:03o}): `chmod 600 {path}`", path = .path.display())]
    Mode {
        /// Its name.
        path: PathBuf,
        /// Its rights.
        mode: u32,
    },
    /// Its bytes are no secret.
    #[error("the key file {path}: {error}", path = .path.display())]
    Secret {
        /// Its name.
        path: PathBuf,
        /// Why.
        error: SecretError,
    },
}

/// Reads the secret of a file. A newline at the end is no part of it.
///
/// # Errors
/// When there is no such file, when others than its owner may use it, or when it holds too little or too much.
pub fn read_key_file(path: &Path) -> Result<Secret, KeyFileError> {
    let failed = |error| KeyFileError::Read { path: path.into(), error };
    let mut file = File::open(path).map_err(failed)?;
    // Of the file that was opened, whatever has its name by now.
    let mode = file.metadata().map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Mode { path: path.into(), mode: mode & 0o777 });
    }
    let mut bytes = Vec::new();
    // One byte too much, and a newline.
    let most = Secret::MAX as u64 + 2;
    Read::by_ref(&mut file).take(most).read_to_end(&mut bytes).map_err(failed)?;
    let secret = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    Secret::new(secret).map_err(|error| KeyFileError::Secret { path: path.into(), error })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_file_is_its_owners_alone_and_long_enough() {
        let folder = std::env::temp_dir().join(format!("softnic-key-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("key");
        let error = |path: &Path| read_key_file(path).unwrap_err().to_string();
        assert!(error(&path).starts_with("cannot read the key file"), "{}", error(&path));
        let put = |bytes: &[u8], mode| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        put(&[7; 32], 0o600);
        assert_eq!(read_key_file(&path).unwrap(), Secret::new(&[7; 32]).unwrap());
        put(b"0123456789abcdef\n", 0o400);
        assert_eq!(read_key_file(&path).unwrap(), Secret::new(b"0123456789abcdef").unwrap());
        fs::remove_file(&path).unwrap();
        for mode in [0o640, 0o604, 0o644, 0o620] {
            put(&[7; 32], mode);
            assert!(error(&path).contains(&format!("mode {mode:03o}")), "{}", error(&path));
        }
        for (bytes, expected) in
            [(&b"0123456789abcde\n"[..], "at least 16 bytes, not 15"), (&[7; 4097], "at most 4096")]
        {
            put(bytes, 0o600);
            assert!(error(&path).contains(expected), "{}", error(&path));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
