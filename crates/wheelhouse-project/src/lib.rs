//! Projects of operators: made from a template, added to, and brought up to date.
//!
//! A project is a pure function of a few answers: [`Project`] (its `wheelhouse.toml`) says what it has, and
//! [`template::render`] makes every file of it. So whatever a verb does is one thing: the files of the answers before, the
//! files of the answers after, and what people have made of them meanwhile, merged ([`change`]). `init`, `create api`,
//! `create webhook` and `project upgrade` differ only in which answers change.
//!
//! - [`naming`]: names that are refused if they cannot work.
//! - [`project`]: the answers.
//! - [`template`]: from answers to files. Pure.
//! - `versions`: another version of a kind, from what people made of the first one.
//! - [`formatting`]: Rust as rustfmt would write it.
//! - [`change`]: from files to other files, all or nothing.
//! - [`verbs`]: what people call.
//! - [`workspace`]: what is around a project that is to be a member of it.
//! - [`folder`]: folders that need not be there yet.
//! - [`manifests`]: what an operator prints, as files of `config/` and `deploy/`.

pub mod change;
pub mod error;
pub mod folder;
pub mod formatting;
pub mod git;
pub mod manifests;
pub mod naming;
pub mod project;
pub mod template;
pub mod verbs;
mod versions;
pub mod workspace;

pub use error::{Error, Result};
pub use project::{Api, Project, Sdk, Settings, Webhook};
