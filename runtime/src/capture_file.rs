//! The files of captures: nobody else reads them, and none is made through a symbolic link that somebody laid there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes the file, or empties it.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    options.open(path)
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
}
