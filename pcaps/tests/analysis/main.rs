//! What the packets of a capture say together: connections, round trips.

mod capture;
mod pairing;
mod verdicts;
