//! Where entries about backups are kept, as a user writes it: `peer`, or the address of a redis server.

use std::fmt;
use std::str::FromStr;

/// The prefix of all keys, without the colon behind it, unless the user gives another one.
const DEFAULT_PREFIX: &str = "softnic";

/// The discovery method of failover: where the two ends of a connection find each other's backups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kv {
    /// By MADs to the peer.
    #[default]
    Peer,
    /// By a redis server that both ends can reach.
    Redis(RedisUrl),
}

/// The address of a redis server, and the login.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// A name or an address; an IPv6 address without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// User and password. An empty user is the server's default user.
    pub(crate) login: Option<(String, String)>,
    pub(crate) db: u32,
    /// The prefix of all keys.
    pub(crate) prefix: String,
}

/// Why the text for a store was rejected. Errors quote nothing of the text, because a password may be in any part of a
/// malformed address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KvError {
    /// The text is of neither kind.
    #[error("a store is peer or redis://[USER:PASSWORD@]HOST:PORT[/DB][?prefix=P]")]
    Kind,
    /// The host or the port is missing.
    #[error("redis:// needs HOST:PORT, e.g. redis://10.0.0.9:6379 or redis://[fd00::9]:6379")]
    Host,
    /// The port is not a valid port number.
    #[error("the port of redis:// is a number from 1 to 65535, e.g. redis://10.0.0.9:6379")]
    Port,
    /// The password, or the colon before it, is missing.
    #[error(
        "redis:// needs USER:PASSWORD or :PASSWORD before the @; write @ : / ? and % in them as %40 %3A %2F %3F %25"
    )]
    Login,
    /// A percent sign is not followed by two hexadecimal digits.
    #[error("a % in the user or the password of redis:// needs two hexadecimal digits behind it; % itself is %25")]
    Escape,
    /// The database is not a number.
    #[error("the database of redis:// is a number, e.g. redis://10.0.0.9:6379/2")]
    Database,
    /// The query has another parameter than the prefix.
    #[error("behind the ? of redis:// there can be prefix=P alone, e.g. redis://10.0.0.9:6379?prefix=cluster7")]
    Query,
    /// The prefix is not valid.
    #[error("a prefix of redis:// has letters, digits and - _ . : alone, at least one and at most 64")]
    Prefix,
}

impl FromStr for Kv {
    type Err = KvError;

    fn from_str(s: &str) -> Result<Kv, KvError> {
        match s.strip_prefix("redis://") {
            Some(rest) => redis_url(rest).map(Kv::Redis),
            None if s == "peer" => Ok(Kv::Peer),
            None => Err(KvError::Kind),
        }
    }
}

/// Parses the text behind `redis://`.
fn redis_url(s: &str) -> Result<RedisUrl, KvError> {
    let (s, query) = s.split_once('?').map_or((s, None), |(s, query)| (s, Some(query)));
    let prefix = match query.map(|q| q.strip_prefix("prefix=").ok_or(KvError::Query)).transpose()? {
        None => DEFAULT_PREFIX,
        Some(p) if (1..=64).contains(&p.len()) && p.bytes().all(is_key_byte) => p,
        Some(_) => return Err(KvError::Prefix),
    };
    let (authority, db) = s.split_once('/').map_or((s, ""), |(authority, db)| (authority, db));
    let db = if db.is_empty() { 0 } else { number(db).ok_or(KvError::Database)? };
    let (login, address) = match authority.rsplit_once('@') {
        Some((login, address)) => (Some(login), address),
        None => (None, authority),
    };
    let login = match login.map(|login| login.split_once(':').ok_or(KvError::Login)).transpose()? {
        Some((_, "")) => return Err(KvError::Login),
        Some((user, password)) => Some((unescape(user)?, unescape(password)?)),
        None => None,
    };
    let (host, port) = address.rsplit_once(':').ok_or(KvError::Host)?;
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']').filter(|h| h.parse::<std::net::Ipv6Addr>().is_ok()).ok_or(KvError::Host)?,
        None if host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b)) => {
            return Err(KvError::Host);
        }
        None => host,
    };
    let port = number(port).and_then(|p| u16::try_from(p).ok()).filter(|p| *p > 0).ok_or(KvError::Port)?;
    Ok(RedisUrl { host: host.into(), port, login, db, prefix: prefix.into() })
}

/// Parses digits alone: `parse` would accept a sign.
fn number(s: &str) -> Option<u32> {
    if s.bytes().all(|b| b.is_ascii_digit()) { s.parse().ok() } else { None }
}

fn is_key_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-_.:".contains(&b)
}

/// Decodes percent escapes: `%40` is `@`.
fn unescape(s: &str) -> Result<String, KvError> {
    let mut bytes = Vec::with_capacity(s.len());
    let mut rest = s.bytes();
    while let Some(b) = rest.next() {
        bytes.push(match b {
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
                let (high, low) = (digit().ok_or(KvError::Escape)?, digit().ok_or(KvError::Escape)?);
                (high * 16 + low) as u8
            }
            b => b,
        });
    }
    String::from_utf8(bytes).map_err(|_| KvError::Escape)
}

impl fmt::Display for Kv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kv::Peer => f.write_str("peer"),
            Kv::Redis(url) => url.fmt(f),
        }
    }
}

/// The URL without the password.
impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("redis://")?;
        if let Some((user, _)) = &self.login {
            // Percent-encoded, as in a URL: a user may contain a line break.
            let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
            for b in user.bytes() {
                if plain(&b) { write!(f, "{}", char::from(b))? } else { write!(f, "%{b:02X}")? }
            }
            f.write_str(":***@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        write!(f, ":{}", self.port)?;
        if self.db != 0 {
            write!(f, "/{}", self.db)?;
        }
        if self.prefix != DEFAULT_PREFIX {
            write!(f, "?prefix={}", self.prefix)?;
        }
        Ok(())
    }
}

/// The URL without the password here, too.
impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(s: &str) -> RedisUrl {
        match s.parse() {
            Ok(Kv::Redis(url)) => url,
            other => panic!("{s}: {other:?}"),
        }
    }

    #[test]
    fn stores_are_read() {
        assert_eq!("peer".parse(), Ok(Kv::Peer));
        let plain = RedisUrl { host: "h".into(), port: 6379, login: None, db: 0, prefix: "softnic".into() };
        assert_eq!(url("redis://h:6379"), plain);
        assert_eq!(url("redis://h:6379/"), plain);
        let all = url("redis://me:se%40c%2fret@[fd00::9]:1/15?prefix=a:b-c_d.7");
        assert_eq!((all.host.as_str(), all.port, all.db, all.prefix.as_str()), ("fd00::9", 1, 15, "a:b-c_d.7"));
        assert_eq!(all.login, Some(("me".into(), "se@c/ret".into())));
        assert_eq!(url("redis://:a:b@c@h-1.x:1").login, Some((String::new(), "a:b@c".into())), "the last @ counts");
    }

    #[test]
    fn what_is_written_wrong_gets_a_reason_that_shows_nothing_of_it() {
        let unknown =
            ["", "Peer", "redis", "redis:/h:1", "rediss://h:1", "memcached://h:1"].map(|s| (s, KvError::Kind));
        let wrong = [
            ("redis://", KvError::Host),
            ("redis://h", KvError::Host),
            ("redis://:6379", KvError::Host),
            ("redis://a b:6379", KvError::Host),
            ("redis://[fd00::9:6379", KvError::Host),
            ("redis://[h]:6379", KvError::Host),
            ("redis://fd00::9:6379", KvError::Host),
            ("redis://h:", KvError::Port),
            ("redis://h:0", KvError::Port),
            ("redis://h:+1", KvError::Port),
            ("redis://h:65536", KvError::Port),
            ("redis://user:pass/word@h:1", KvError::Database),
            ("redis://secret@h:1", KvError::Login),
            ("redis://user:@h:1", KvError::Login),
            ("redis://user:%4@h:1", KvError::Escape),
            ("redis://user:%zz@h:1", KvError::Escape),
            ("redis://user:%ff@h:1", KvError::Escape),
            ("redis://h:1/x", KvError::Database),
            ("redis://h:1/-1", KvError::Database),
            ("redis://h:1?db=1", KvError::Query),
            ("redis://h:1?prefix=", KvError::Prefix),
            ("redis://h:1?prefix=a&b", KvError::Prefix),
        ];
        for (s, why) in unknown.into_iter().chain(wrong) {
            assert_eq!(s.parse::<Kv>(), Err(why), "{s}");
            let said = why.to_string();
            assert!(said.lines().count() == 1 && !said.contains("secret") && !said.contains("pass/"), "{said}");
        }
    }

    #[test]
    fn a_password_is_never_shown_and_the_rest_is() {
        for (written, shown) in [
            ("peer", "peer"),
            ("redis://h:1", "redis://h:1"),
            ("redis://:secret@h:1/0", "redis://:***@h:1"),
            ("redis://m%0ae:secret@[::1]:1/3?prefix=p", "redis://m%0Ae:***@[::1]:1/3?prefix=p"),
        ] {
            let kv: Kv = written.parse().unwrap();
            assert_eq!(kv.to_string(), shown);
            assert!(!format!("{kv:?}").contains("secret"));
        }
    }
}
