//! The communication manager: establishes, refuses and ends connections by messages between QP1s (IBA chapter 12).
//!
//! A [`Cm`] owns the connections of one NIC, each under a [`CmId`]. It is a state machine without IO: MADs and time are passed in, and MADs
//! are polled. It reads no clock, opens no socket, and uses no randomness except what is passed in.
//!
//! - in: [`Cm::handle_mad`] for each MAD that arrived at QP1, [`Cm::handle_comm_est`] for the first data on a queue pair,
//!   [`Cm::handle_timeout`] at the time of [`Cm::poll_timeout`];
//! - out: [`Cm::poll_transmit`] for MADs to send, [`Cm::poll_event`] for the program's events;
//! - commands: [`Cm::listen`], [`Cm::connect`], [`Cm::accept`], [`Cm::reject`], [`Cm::mra`], [`Cm::establish`],
//!   [`Cm::disconnect`], [`Cm::resolve`], [`Cm::sidr_reply`], [`Cm::destroy`];
//! - from the code that protects connections by a second NIC: [`Cm::set_backup`], [`Cm::set_side`], [`Cm::set_ports`].
//!
//! After any of these calls a driver polls for MADs, events and the timer. `docs/cm.md` has the states and the timers.
//!
//! ```
//! use softnic_cm::{Accept, Cm, Config, Connect, Event, Listen, PortSpace, Route};
//! use softnic_wire::{Instant, Psn, Qpn};
//!
//! let now = Instant::ZERO;
//! let mut seed = 7_u32;
//! let mut numbers = move || { seed = seed.wrapping_mul(0x9e37_79b1).wrapping_add(1); seed };
//! let mut server = Cm::new(Config { ca_guid: 1, ..Config::default() }, numbers);
//! let mut client = Cm::new(Config { ca_guid: 2, ..Config::default() }, move || numbers() ^ 0x55);
//! server.listen(&Listen::port(PortSpace::Tcp, "0.0.0.0:7174".parse()?))?;
//! let id = client.connect(&Connect::ip("10.0.0.1:40000".parse()?, "10.0.0.2:7174".parse()?, Qpn::new(17), Psn::new(5))?)?;
//!
//! // What a driver does: carry MADs from one to the other. Who receives sees the addresses the other way round.
//! fn carry(now: Instant, from: &mut Cm, to: &mut Cm) {
//!     let mut mad = [0; 256];
//!     while let Some(route) = from.poll_transmit(now, &mut mad) {
//!         to.handle_mad(now, &Route { local: route.remote, remote: route.local, ..route }, &mad);
//!     }
//! }
//! carry(now, &mut client, &mut server);
//! let Some(Event::ConnectRequest { id: passive, request, .. }) = server.poll_event() else { panic!() };
//! assert_eq!((request.local_qpn, request.starting_psn), (17, Psn::new(5)));
//! server.accept(passive, &Accept::new(Qpn::new(18), Psn::new(9)))?;
//! carry(now, &mut server, &mut client);
//! let Some(Event::ConnectResponse { reply, .. }) = client.poll_event() else { panic!() };
//! assert_eq!((reply.local_qpn, reply.starting_psn), (18, Psn::new(9)));
//! client.establish(id, &[])?;
//! carry(now, &mut client, &mut server);
//! assert!(matches!(server.poll_event(), Some(Event::Established { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod backup;
mod cm;
mod command;
mod config;
mod conn;
mod error;
mod event;
#[doc(hidden)]
pub mod fuzz;
mod listen;
mod params;
mod receive;
mod sidr;

pub use cm::Cm;
pub use config::{Config, Counters};
pub use conn::{CmId, State};
pub use error::Error;
pub use event::{Disconnect, Event};
pub use listen::{Listen, ListenId};
pub use params::{Accept, Connect, MraTime, PortSpace, Resolve, Route, SidrReply};
