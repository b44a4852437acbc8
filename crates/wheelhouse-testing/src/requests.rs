//! The requests that an API server answered, to be counted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jiff::Timestamp;

/// The verbs that change something.
const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// A moment in the sequence of requests. The default is the start of the control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// How much of the log is from before.
    pub(crate) offset: u64,
    /// Watches that were open then: their end is logged later, but they are from before.
    pub(crate) open: BTreeSet<String>,
}

/// One request that the API server answered, or, for a watch, began to answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Who asked, as in `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// What the client says it is.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; a server-side apply
    /// is a `patch`.
    pub verb: String,
    /// The API group; empty for the core.
    pub group: String,
    /// As in `configmaps` or `pods/status`; the path, where it is not a resource's.
    pub resource: String,
    /// The namespace; empty where there is none.
    pub namespace: String,
    /// The object; empty where none was named.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the API server received it, by its clock, to the microsecond.
    pub received: Timestamp,
    /// When it had answered, or, for a watch, began to.
    pub answered: Timestamp,
}

/// Requests, to be narrowed down and counted; as text, a table of the counts.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Requests(Vec<Request>);

impl Requests {
    pub(crate) fn new(requests: Vec<Request>) -> Self {
        Self(requests)
    }

    /// Those of one user.
    pub fn by_user(&self, user: &str) -> Self {
        self.filter(|request| request.user == user)
    }

    /// Those for objects in one namespace.
    pub fn in_namespace(&self, namespace: &str) -> Self {
        self.filter(|request| request.namespace == namespace)
    }

    /// Those that change something, also if they were refused.
    pub fn writes(&self) -> Self {
        self.filter(|request| WRITES.contains(&request.verb.as_str()))
    }

    /// Those for which `which` holds.
    pub fn filter(&self, which: impl Fn(&Request) -> bool) -> Self {
        Self(self.0.iter().filter(|request| which(request)).cloned().collect())
    }

    /// How many with this verb for this resource, in whatever API group.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        self.0.iter().filter(|request| request.verb == verb && request.resource == resource).count()
    }

    /// How many for each verb and resource.
    pub fn by_verb_and_resource(&self) -> BTreeMap<(&str, &str), usize> {
        let mut counts = BTreeMap::new();
        for request in &self.0 {
            *counts.entry((request.verb.as_str(), request.resource.as_str())).or_default() += 1;
        }
        counts
    }

    /// How many in all.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One after the other, in the order of the answers.
    pub fn iter(&self) -> impl Iterator<Item = &Request> {
        self.0.iter()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return write!(f, "no requests");
        }
        let counts = self.by_verb_and_resource();
        let verbs = counts.keys().map(|(verb, _)| verb.len()).max().unwrap_or_default();
        for (index, ((verb, resource), count)) in counts.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{count:>6} {verb:verbs$} {resource}")?;
        }
        Ok(())
    }
}

/// The table, which is what a failed assertion should show.
impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(verb: &str, resource: &str, namespace: &str) -> Request {
        Request {
            user: "me".to_owned(),
            user_agent: String::new(),
            verb: verb.to_owned(),
            group: String::new(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: String::new(),
            code: 200,
            received: Timestamp::UNIX_EPOCH,
            answered: Timestamp::UNIX_EPOCH,
        }
    }

    fn some() -> Requests {
        Requests::new(vec![
            request("get", "configmaps", "a"),
            request("patch", "pods/status", "a"),
            request("get", "configmaps", "b"),
            request("deletecollection", "configmaps", "b"),
        ])
    }

    #[test]
    fn only_what_changes_something_is_a_write() {
        let writes = some().writes();
        assert_eq!(2, writes.len());
        assert_eq!(0, writes.count("get", "configmaps"));
    }

    #[test]
    fn a_status_is_not_counted_as_its_object() {
        assert_eq!(0, some().count("patch", "pods"));
        assert_eq!(1, some().count("patch", "pods/status"));
    }

    #[test]
    fn narrowing_down_leaves_the_rest_out() {
        assert_eq!(1, some().in_namespace("a").count("get", "configmaps"));
        assert!(some().by_user("you").is_empty());
    }

    #[test]
    fn as_text_it_is_a_table_of_the_counts() {
        let table = "     1 deletecollection configmaps\n     2 get              configmaps\n     1 patch            pods/status";
        assert_eq!(table, some().to_string());
        assert_eq!("no requests", Requests::default().to_string());
    }
}
