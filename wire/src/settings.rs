//! The settings of extensions that two NICs negotiate: each extension has bytes of its own in the MAD.

use core::ops::Range;

/// The settings of one extension as bytes of the MAD.
pub trait ExtensionSettings: Sized {
    /// Its bytes among those of all extensions.
    const RANGE: Range<usize>;

    /// Reads exactly these bytes.
    fn parse(bytes: &[u8]) -> Self;

    /// Writes exactly these bytes.
    fn emit(&self, bytes: &mut [u8]);
}

/// The settings of all extensions; zero where an extension is not negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Settings([u8; Settings::LEN]);

impl Settings {
    /// Bytes that extensions have for their settings in all.
    pub const LEN: usize = 32;

    /// No settings.
    pub const NONE: Settings = Settings([0; Settings::LEN]);

    /// As they stand in a MAD.
    pub(crate) const fn from_bytes(bytes: [u8; Settings::LEN]) -> Settings {
        Settings(bytes)
    }

    /// As they stand in a MAD.
    pub(crate) const fn as_bytes(&self) -> &[u8; Settings::LEN] {
        &self.0
    }

    /// The settings of one extension.
    pub fn get<T: ExtensionSettings>(&self) -> T {
        T::parse(&self.0[T::RANGE])
    }

    /// These, and the settings of one more extension.
    pub fn with<T: ExtensionSettings>(mut self, settings: T) -> Settings {
        settings.emit(&mut self.0[T::RANGE]);
        self
    }

    /// These, without the bytes of one extension.
    pub fn without(mut self, range: Range<usize>) -> Settings {
        self.0[range].fill(0);
        self
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::NONE
    }
}
