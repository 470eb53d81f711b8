//! Captures: read, write, decode.
