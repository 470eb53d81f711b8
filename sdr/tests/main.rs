//! The SDK on two NICs: frames handed over one by one, and over links with faults in virtual time.

mod calls;
mod coded;
mod corpus;
mod engines;
mod figure_8;
mod figures;
mod immediates;
mod late;
mod lies;
mod reliable;
mod reliable_lies;
mod rows;
mod simulated;
mod world;
