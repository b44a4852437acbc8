//! How a Gordon introduces itself, to people and to programs.

use std::fmt;

use axum::{
    Json,
    http::{HeaderMap, header::ACCEPT},
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

/// Who this Gordon is, as far as its pod tells it.
#[derive(clap::Args, Serialize)]
pub(crate) struct Introduction {
    /// The pod that this runs in
    #[arg(long, env = "POD_NAME")]
    pub(crate) pod: Option<String>,
    /// The Gordon that the pod belongs to
    #[arg(long, env = "GORDON_NAME")]
    pub(crate) gordon: Option<String>,
    /// The namespace of both
    #[arg(long, env = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

impl Introduction {
    /// A line of text, or JSON for who asks for that.
    pub(crate) fn answer(&self, headers: &HeaderMap) -> Response {
        if prefers_json(headers) { Json(self).into_response() } else { format!("{self}\n").into_response() }
    }
}

impl fmt::Display for Introduction {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.pod, &self.gordon) {
            (Some(pod), Some(gordon)) => write!(to, "I am {pod}, one of the Gordons of {gordon}."),
            (Some(pod), None) => write!(to, "I am {pod}, a Gordon of nobody."),
            (None, Some(gordon)) => write!(to, "I am one of the Gordons of {gordon}."),
            (None, None) => write!(to, "I am a Gordon; nobody told me which."),
        }
    }
}

fn prefers_json(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|accepted| {
        accepted
            .split(',')
            .any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json"))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::header::CONTENT_TYPE;

    use super::*;

    fn introduction(pod: Option<&str>, gordon: Option<&str>) -> Introduction {
        Introduction { pod: pod.map(str::to_owned), gordon: gordon.map(str::to_owned), namespace: None }
    }

    #[rstest::rstest]
    #[case(Some("a-0"), Some("a"), "I am a-0, one of the Gordons of a.")]
    #[case(Some("a-0"), None, "I am a-0, a Gordon of nobody.")]
    #[case(None, Some("a"), "I am one of the Gordons of a.")]
    #[case(None, None, "I am a Gordon; nobody told me which.")]
    fn a_gordon_says_what_it_was_told(
        #[case] pod: Option<&str>,
        #[case] gordon: Option<&str>,
        #[case] said: &str,
    ) {
        assert_eq!(said, introduction(pod, gordon).to_string());
    }

    #[rstest::rstest]
    #[case("application/json", true)]
    #[case("text/html, application/json;q=0.9", true)]
    #[case("text/html, */*", false)]
    #[case("application/jsonlines", false)]
    fn only_who_names_json_gets_it(#[case] accept: &str, #[case] json: bool) {
        let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
        let answer = introduction(Some("a-0"), Some("a")).answer(&headers);
        let kind = answer.headers().get(CONTENT_TYPE).unwrap().to_str().unwrap();
        assert_eq!(json, kind == "application/json", "{kind}");
    }
}
