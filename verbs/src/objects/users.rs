//! Reference counts of objects: an object that another one uses is not destroyed.

use softnic_runtime::api;

use crate::errno::Errno;

/// Counts the users of an object: the object cannot be destroyed while there are any.
#[derive(Default)]
pub(crate) struct Users(api::Users);

impl Users {
    pub(crate) fn add(&self) {
        self.0.add();
    }

    pub(crate) fn remove(&self) {
        self.0.remove();
    }

    pub(crate) fn none(&self) -> Result<(), Errno> {
        if self.0.is_none() { Ok(()) } else { Err(Errno::EBUSY) }
    }
}
