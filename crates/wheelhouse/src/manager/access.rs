//! Who may look at decisions: the API server is asked.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::{
    error::{Category, Error, Result},
    key::Key,
    kind::Kind,
};

/// The name of the right to look.
const DECISIONS: &str = "decisions";
/// So many are asked about at the same time; others wait.
const AT_A_TIME: usize = 4;

/// Asks the API server about others.
pub(super) struct Access {
    client: Client,
    /// Where this process has its own token.
    own_token: Option<String>,
    slots: Semaphore,
}

impl Access {
    pub(super) fn new(client: Client, own_token: Option<String>) -> Self {
        Self { client, own_token, slots: Semaphore::new(AT_A_TIME) }
    }

    /// Whether that is the token of this very process: whoever can run a program in its pod is asking.
    fn is_own(&self, token: &str) -> bool {
        let own = self.own_token.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let digest = |token: &str| Sha256::digest(token.trim().as_bytes());
        own.is_some_and(|own| !own.trim().is_empty() && digest(&own) == digest(token))
    }

    /// Whether the bearer of this token may look at the decisions about a kind, in
    /// one namespace or in all of them.
    ///
    /// # Errors
    /// When they may not, or nobody can tell.
    pub(super) async fn check(&self, token: Option<&str>, kind: &Kind, key: Option<&Key>) -> Result<()> {
        let Some(token) = token else {
            let message = "who are you? Send a token: Authorization: Bearer TOKEN";
            return Err(Error::new(Category::Forbidden, message));
        };
        if self.is_own(token) {
            return Ok(());
        }
        // Closed only when the process ends.
        let _slot = self.slots.acquire().await;
        let user = self.whose(token).await?;
        let name = user.username.clone().unwrap_or_default();
        let attributes = ResourceAttributes {
            group: Some(kind.group.clone()),
            resource: Some(kind.plural.clone()),
            subresource: Some(DECISIONS.to_owned()),
            verb: Some("get".to_owned()),
            namespace: key.and_then(|key| key.namespace()).map(str::to_owned),
            name: key.map(|key| key.name().to_owned()),
            ..ResourceAttributes::default()
        };
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews = Api::all(self.client.clone());
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(Error::api("ask the API server what you may do"))?;
        match answer.status.is_some_and(|status| status.allowed) {
            true => Ok(()),
            false => Err(Error::new(
                Category::Forbidden,
                format!("{name} may not get {}/{DECISIONS} of the group {:?}", kind.plural, kind.group),
            )),
        }
    }

    async fn whose(&self, token: &str) -> Result<UserInfo> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews = Api::all(self.client.clone());
        let answer: TokenReview = reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(Error::api("ask the API server who you are"))?;
        let status = answer.status.unwrap_or_default();
        match status.authenticated {
            Some(true) => Ok(status.user.unwrap_or_default()),
            _ => Err(Error::new(Category::Forbidden, "the API server does not know this token")),
        }
    }
}
