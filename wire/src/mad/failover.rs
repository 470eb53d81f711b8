//! MADs by which two NICs agree on a backup for a connection, in softnic's vendor class.

use super::Attribute;

/// Which backup each end has for a connection.
pub const FAILOVER_HELLO: Attribute = Attribute(0x0011);
/// The key of a region at the backup NIC.
pub const FAILOVER_REGION: Attribute = Attribute(0x0012);
