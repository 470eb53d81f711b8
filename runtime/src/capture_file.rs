//! The files of captures: nobody else reads them, and none is made through a symbolic link that somebody laid there.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Makes the file, or empties it.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(path)
}

/// A file that is named by what it fails with: who hears of it has nothing but the words.
pub(crate) struct NamedFile {
    file: BufWriter<File>,
    path: PathBuf,
}

/// What writing to a [`NamedFile`] failed with.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", .path.display())]
struct NamedError {
    path: PathBuf,
    cause: io::Error,
}

impl NamedFile {
    pub(crate) fn create(path: &Path) -> io::Result<NamedFile> {
        Ok(NamedFile { file: BufWriter::new(create(path)?), path: path.into() })
    }

    /// The error without the name, for those who know it.
    pub(crate) fn cause(error: io::Error) -> io::Error {
        error.downcast::<NamedError>().map_or_else(|other| other, |named| named.cause)
    }

    fn named(&self, cause: io::Error) -> io::Error {
        io::Error::new(cause.kind(), NamedError { path: self.path.clone(), cause })
    }
}

impl Write for NamedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|e| self.named(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush().map_err(|e| self.named(e))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn a_capture_is_its_owners_alone_and_goes_through_no_link() {
        let folder = std::env::temp_dir().join(format!("softnic-capture-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let (file, link) = (folder.join("file"), folder.join("link"));
        create(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        std::fs::write(&file, "somebody's").unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(create(&link).map(|_| ()).map_err(|e| e.raw_os_error()), Err(Some(libc::ELOOP)));
        assert_eq!(std::fs::read(&file).unwrap(), b"somebody's", "it is as it was");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named_and_its_cause_is_kept() {
        let mut full = NamedFile::create(Path::new("/dev/full")).unwrap();
        let error = full.write_all(b"x").and_then(|()| full.flush()).unwrap_err();
        assert_eq!(error.to_string(), "/dev/full: No space left on device (os error 28)");
        assert_eq!(NamedFile::cause(error).raw_os_error(), Some(libc::ENOSPC));
        assert_eq!(NamedFile::cause(io::ErrorKind::NotFound.into()).kind(), io::ErrorKind::NotFound);
    }
}
