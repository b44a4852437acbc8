//! What is in the API server: Widgets that the harness makes, ConfigMaps that a
//! contestant makes of them, and eyes on how far it has got.
//!
//! The eyes are one watch for each kind, the same for every contestant.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context as _, Result, bail};
use futures::{Stream, StreamExt as _, TryStreamExt as _, future, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use wheelhouse_local::progress::Progress;

use crate::widget::{self, Payload, Widget};

/// How many requests of ours are under way at once when there is much to make.
const AT_ONCE: usize = 16;

/// How many objects one request deletes: the API server gives up on what takes more than a minute.
const DELETED_AT_ONCE: u32 = 500;

/// How long the API server gets to calm down after much was made or deleted.
const CALM: Duration = Duration::from_secs(2);

/// Widgets of one namespace, whose convergence is watched.
#[derive(Debug)]
pub(crate) struct World {
    widgets: Api<Widget>,
    size: usize,
    seen: watch::Receiver<Seen>,
    watching: JoinHandle<()>,
}

impl World {
    /// Empties the namespace and makes so many Widgets there.
    pub(crate) async fn make(
        client: &Client,
        namespace: &str,
        size: usize,
        payload: Payload,
        patience: Duration,
        progress: &Progress,
    ) -> Result<Self> {
        let widgets: Api<Widget> = Api::namespaced_with(client.clone(), namespace, &widget::api_resource());
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let stage = progress.stage("emptying the world");
        tokio::try_join!(empty(&widgets, patience), empty(&config_maps, patience))
            .context("cannot delete what is left of the world before")?;
        stage.done();

        let mut stage = progress.stage(format!("making {size} Widgets"));
        let parameters = PostParams::default();
        let mut creations = stream::iter(0..size)
            .map(|index| {
                let (widgets, parameters) = (&widgets, &parameters);
                async move { widgets.create(parameters, &widget::new(index, payload)).await }
            })
            .buffer_unordered(AT_ONCE);
        let mut made = 0;
        while creations.try_next().await.context("cannot create a Widget")?.is_some() {
            made += 1;
            stage.at(made, size);
        }
        drop(creations);
        stage.done();

        let (sender, seen) = watch::channel(Seen::default());
        let watching = tokio::spawn(look(widgets.clone(), config_maps, sender));
        let mut world = Self { widgets, size, seen, watching };
        world.until(patience, "be seen by the harness", |seen| seen.widgets() == size).await?;
        tokio::time::sleep(CALM).await;
        Ok(world)
    }

    /// How many Widgets there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Waits until every Widget has its ConfigMap and a status for its generation.
    pub(crate) async fn converged(&mut self, progress: &Progress, what: String) -> Result<()> {
        let mut stage = progress.stage(what);
        let size = self.size;
        let eyes_shut = "the harness no longer watches the world";
        self.seen
            .wait_for(|seen| {
                stage.at(seen.converged, size);
                seen.converged == size
            })
            .await
            .context(eyes_shut)?;
        stage.done();
        Ok(())
    }

    /// Changes the size of a Widget, and waits until its ConfigMap and its status have followed.
    pub(crate) async fn change(&mut self, index: usize, size: i64, patience: Duration) -> Result<()> {
        let name = widget::name(index);
        let patch = json!({"spec": {"size": size}});
        let changed = self
            .widgets
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("cannot change the Widget {name}"))?;
        let generation = changed.metadata.generation;
        let what = format!("follow a change of {name}");
        self.until(patience, &what, |seen| seen.has_followed(&name, generation)).await
    }

    async fn until(
        &mut self,
        patience: Duration,
        what: &str,
        condition: impl FnMut(&Seen) -> bool,
    ) -> Result<()> {
        match tokio::time::timeout(patience, self.seen.wait_for(condition)).await {
            Ok(seen) => seen.map(drop).context("the harness no longer watches the world"),
            Err(_) => bail!("the world did not {what} within {patience:?}"),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Deletes everything of a kind. No garbage collector runs, so nothing goes by itself.
async fn empty<K>(api: &Api<K>, patience: Duration) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let deadline = Instant::now() + patience;
    let any = ListParams::default().limit(1);
    let some = ListParams::default().limit(DELETED_AT_ONCE);
    while api.list(&any).await.map_or(true, |left| !left.items.is_empty()) {
        if Instant::now() > deadline {
            bail!("not done within {patience:?}");
        }
        // A connection that the API server closed meanwhile is no reason to give up.
        if let Err(error @ kube::Error::Api(_)) = api.delete_collection(&DeleteParams::default(), &some).await
        {
            return Err(error.into());
        }
    }
    Ok(())
}

/// What is known of every Widget and its ConfigMap.
#[derive(Debug, Default)]
struct Seen {
    pairs: HashMap<String, Pair>,
    converged: usize,
}

/// A Widget and the ConfigMap of its name.
#[derive(Debug, Default)]
struct Pair {
    size: Option<i64>,
    generation: Option<i64>,
    observed_generation: Option<i64>,
    config_map_size: Option<String>,
}

impl Pair {
    fn has_converged(&self) -> bool {
        self.generation.is_some()
            && self.generation == self.observed_generation
            && self.size.map(|size| size.to_string()) == self.config_map_size
    }
}

/// One of the two, as a watch tells of it.
enum Sight {
    Widget(Box<Widget>),
    ConfigMap(Box<ConfigMap>),
}

impl Seen {
    fn widgets(&self) -> usize {
        self.pairs.values().filter(|pair| pair.generation.is_some()).count()
    }

    fn has_followed(&self, name: &str, generation: Option<i64>) -> bool {
        self.pairs.get(name).is_some_and(|pair| pair.generation >= generation && pair.has_converged())
    }

    fn take_in(&mut self, sight: Sight) {
        let metadata = match &sight {
            Sight::Widget(widget) => &widget.metadata,
            Sight::ConfigMap(config_map) => &config_map.metadata,
        };
        let pair = self.pairs.entry(metadata.name.clone().unwrap_or_default()).or_default();
        let before = pair.has_converged();
        match sight {
            Sight::Widget(widget) => {
                pair.size = Some(widget.spec.size);
                pair.generation = widget.metadata.generation;
                pair.observed_generation = widget.status.and_then(|status| status.observed_generation);
            }
            Sight::ConfigMap(config_map) => {
                pair.config_map_size = config_map.data.and_then(|mut data| data.remove("size"));
            }
        }
        match (before, pair.has_converged()) {
            (false, true) => self.converged += 1,
            (true, false) => self.converged -= 1,
            _ => {}
        }
    }
}

/// Keeps `seen` up to date for as long as anybody looks.
async fn look(widgets: Api<Widget>, config_maps: Api<ConfigMap>, seen: watch::Sender<Seen>) {
    let widgets = sights(widgets).map(|widget| Sight::Widget(Box::new(widget)));
    let config_maps = sights(config_maps).map(|config_map| Sight::ConfigMap(Box::new(config_map)));
    let mut sights = stream::select(widgets.boxed(), config_maps.boxed());
    while let Some(sight) = sights.next().await {
        seen.send_modify(|seen| seen.take_in(sight));
    }
}

/// Every object of a kind, and again whenever it changes. A watch that breaks is begun anew.
fn sights<K>(api: Api<K>) -> impl Stream<Item = K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .filter_map(|event| future::ready(event.ok()))
        .filter_map(|event| {
            future::ready(match event {
                watcher::Event::Apply(object) | watcher::Event::InitApply(object) => Some(object),
                _ => None,
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widget(size: i64, generation: i64, observed: Option<i64>) -> Sight {
        let mut widget = widget::new(1, Payload::Small);
        widget.spec.size = size;
        widget.metadata.generation = Some(generation);
        widget.status = Some(widget::Status { observed_generation: observed });
        Sight::Widget(Box::new(widget))
    }

    fn config_map(size: &str) -> Sight {
        let object = json!({"metadata": {"name": widget::name(1)}, "data": {"size": size}});
        Sight::ConfigMap(Box::new(serde_json::from_value(object).unwrap()))
    }

    fn converged(sights: impl IntoIterator<Item = Sight>) -> usize {
        let mut seen = Seen::default();
        sights.into_iter().for_each(|sight| seen.take_in(sight));
        seen.converged
    }

    #[test]
    fn a_widget_has_converged_with_its_config_map_and_its_status_in_any_order() {
        assert_eq!(1, converged([widget(1, 1, None), config_map("1"), widget(1, 1, Some(1))]));
        assert_eq!(1, converged([config_map("1"), widget(1, 1, Some(1))]));
        assert_eq!(1, converged([widget(1, 1, Some(1)), config_map("1"), config_map("1")]));
    }

    #[test]
    fn a_widget_without_one_of_them_has_not_converged() {
        assert_eq!(0, converged([widget(1, 1, Some(1))]));
        assert_eq!(0, converged([config_map("1")]));
        assert_eq!(0, converged([widget(1, 1, None), config_map("1")]));
    }

    #[test]
    fn a_change_takes_the_convergence_away_until_it_is_followed() {
        let mut seen = Seen::default();
        [widget(1, 1, Some(1)), config_map("1"), widget(2, 2, Some(1))]
            .into_iter()
            .for_each(|sight| seen.take_in(sight));
        assert_eq!(0, seen.converged);
        seen.take_in(config_map("2"));
        assert!(!seen.has_followed(&widget::name(1), Some(2)));
        seen.take_in(widget(2, 2, Some(2)));
        assert!(seen.has_followed(&widget::name(1), Some(2)));
        assert!(!seen.has_followed(&widget::name(1), Some(3)));
        assert_eq!(1, seen.converged);
    }
}
