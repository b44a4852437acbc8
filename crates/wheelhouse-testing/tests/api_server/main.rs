//! Everything that needs an API server; one program, so that its tests share one.
#![cfg(test)]

mod clients;
mod events;
mod lifetime;
mod reconciled;
mod requests;
