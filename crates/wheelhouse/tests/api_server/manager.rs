//! The process as people and Kubernetes see it: health, metrics, CRDs, shutdown.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use wheelhouse::{
    Manager,
    k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    kube::{Api, CustomResourceExt as _, ResourceExt as _},
    metrics::ResourceMetrics,
};
use wheelhouse_testing::ControlPlane;

use super::widgets::{Place, Widget, Widgets, eventually, one_config_map};

async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let code = text.split(' ').nth(1).unwrap().parse().unwrap();
    (code, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test]
async fn health_and_metrics_are_answered_under_the_names_that_dashboards_know() {
    let place = Place::new("metrics").await;
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    place.create("a", 3).await;
    eventually("the Widget settles", async || place.widgets().get("a").await.unwrap().status.is_some()).await;
    let address = operating.started.address();
    assert_eq!(get(address, "/healthz").await.0, 200);
    assert_eq!(get(address, "/readyz").await.0, 200);
    let (code, text) = get(address, "/metrics").await;
    assert_eq!(code, 200);
    for name in [
        "workqueue_depth{name=\"widget\",controller=\"widget\"} 0",
        "workqueue_adds_total{",
        "workqueue_queue_duration_seconds_bucket{",
        "workqueue_work_duration_seconds_sum{",
        "workqueue_unfinished_work_seconds{",
        "workqueue_longest_running_processor_seconds{",
        "workqueue_retries_total{",
        "controller_runtime_reconcile_total{controller=\"widget\",result=\"success\"}",
        "controller_runtime_reconcile_time_seconds_count{controller=\"widget\"}",
        "controller_runtime_max_concurrent_reconciles{controller=\"widget\"} 10",
        "controller_runtime_active_workers{controller=\"widget\"} 0",
        "rest_client_requests_total{code=\"200\",method=\"PATCH\"",
        "wheelhouse_cache_objects{group=\"\",kind=\"ConfigMap\"} 1",
        "wheelhouse_cache_bytes{group=\"\",kind=\"ConfigMap\"}",
        "wheelhouse_steps_total{controller=\"widget\",step=\"apply\",result=\"done\"} 1",
        "wheelhouse_failing_resources{controller=\"widget\"} 0",
    ] {
        assert!(text.contains(name), "{name} is missing in:\n{text}");
    }
    operating.stop().await;
}

#[tokio::test]
async fn metrics_of_the_operators_own_are_told_of_every_resource_that_is_there_and_of_no_other() {
    let place = Place::new("own-metrics").await;
    let metrics = ResourceMetrics::<Widget>::labelled("widget")
        .only(|widget| widget.spec.size < 9)
        .gauge("widget_size", "How large it is", |widget, samples| samples.tell(widget.spec.size as f64))
        .counter("widget_parts", "What it is made of", |widget, samples| {
            samples.tell_as("part", "edge", 4);
            samples.tell_as("part", "inside", widget.spec.size as f64);
        })
        .looks("widget_last_look_timestamp_seconds", "When it was last looked at");
    let operating = place.start(Widgets::new(one_config_map).controller().metrics(metrics)).await;
    for (name, size) in [("a", 3), ("b", 5), ("left-out", 9)] {
        place.create(name, size).await;
    }
    let address = operating.started.address();
    let series = async || -> Vec<String> {
        let (_, text) = get(address, "/metrics").await;
        let own = text.lines().filter(|line| line.starts_with("widget_"));
        own.map(|line| line.replace(place.namespace.name(), "N")).collect()
    };
    eventually("both were looked at", async || series().await.len() == 8).await;
    let told = series().await;
    for line in [
        r#"widget_size{namespace="N",widget="a"} 3.0"#,
        r#"widget_parts_total{namespace="N",widget="a",part="edge"} 4.0"#,
        r#"widget_parts_total{namespace="N",widget="b",part="inside"} 5.0"#,
    ] {
        assert!(told.iter().any(|known| known == line), "{line} is not in {told:#?}");
    }
    let looked = told.iter().find(|line| line.starts_with("widget_last_look_")).unwrap();
    let at: f64 = looked.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((wheelhouse::jiff::Timestamp::now().as_second() as f64 - at).abs() < 60.0, "{looked}");

    place.widgets().delete("b", &Default::default()).await.unwrap();
    eventually("what is gone is told of no more", async || {
        let left = series().await;
        left.len() == 4 && left.iter().all(|line| line.contains(r#"widget="a""#))
    })
    .await;
    operating.stop().await;
}

#[tokio::test]
async fn a_crd_that_is_missing_at_the_start_and_appears_later_is_taken_up() {
    let plane = ControlPlane::start().await.unwrap();
    let namespace = plane.namespace("late-crd").await.unwrap();
    let identity =
        namespace.with_cluster_rules(vec![wheelhouse_testing::rule(&["*"], "*", &["*"])]).await.unwrap();
    let place = Place { client: namespace.client().unwrap(), namespace, identity };
    let operating = place.start(Widgets::new(one_config_map).controller()).await;
    let address = operating.started.address();
    eventually("it says what it waits for", async || {
        let (code, text) = get(address, "/readyz").await;
        code == 503 && text.contains("does not serve widgets yet: is the CRD installed?")
    })
    .await;
    super::widgets::install_crd(plane.client().unwrap()).await;
    place.create("a", 3).await;
    eventually("the Widget settles", async || place.config_maps().get_opt("a").await.unwrap().is_some())
        .await;
    assert_eq!(get(address, "/readyz").await.0, 200);
    operating.stop().await;
}

#[tokio::test]
async fn crds_are_installed_at_the_start_and_never_an_older_one_over_a_newer() {
    let plane = ControlPlane::start().await.unwrap();
    let namespace = plane.namespace("install-crds").await.unwrap();
    let identity =
        namespace.with_cluster_rules(vec![wheelhouse_testing::rule(&["*"], "*", &["*"])]).await.unwrap();
    let place = Place { client: namespace.client().unwrap(), namespace, identity };
    let crds: Api<CustomResourceDefinition> = Api::all(place.client.clone());
    for (version, installed) in [("1.2.0", "1.2.0"), ("1.10.0", "1.10.0"), ("1.9.0", "1.10.0")] {
        let mut settings = place.settings();
        settings.install_crds = true;
        let stop = CancellationToken::new();
        let manager = Manager::new("test-operator")
            .version(version)
            .crd(Widget::crd())
            .controller(Widgets::new(one_config_map).controller());
        let started = manager.start(place.identity.config(), settings, stop.clone()).await.unwrap();
        let crd = crds.get("widgets.test.wheelhouse.dev").await.unwrap();
        assert_eq!(crd.annotations()["wheelhouse.dev/version"], installed);
        place.widgets().list(&Default::default()).await.expect("it is served");
        stop.cancel();
        started.finished().await.unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_finishes_the_step_that_runs() {
    let place = Place::new("shutdown").await;
    let proxy = wheelhouse_testing::ApiProxy::start(&place.identity).await.unwrap();
    proxy.disturb(|method, target| match method == "PATCH" && target.contains("configmaps") {
        true => wheelhouse_testing::Fault::Delay(Duration::from_secs(1)),
        false => wheelhouse_testing::Fault::None,
    });
    let widgets = Widgets::new(|seen| {
        let mut plan = one_config_map(seen);
        plan.apply(&super::widgets::config_map("second", &[]), "wanted");
        plan
    });
    let operating = place.start_with(proxy.config(), place.settings(), widgets.controller()).await;
    place.create("a", 3).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    operating.stop().await;
    assert!(place.config_maps().get_opt("a").await.unwrap().is_some(), "the running step was finished");
    assert!(place.config_maps().get_opt("second").await.unwrap().is_none(), "no other was begun");
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_in_a_sentence() {
    let place = Place::new("taken").await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = place.settings();
    settings.listen = listener.local_addr().unwrap();
    let manager = Manager::new("test-operator").controller(Widgets::new(one_config_map).controller());
    let error =
        manager.start(place.identity.config(), settings, CancellationToken::new()).await.err().unwrap();
    let text = error.to_string();
    assert!(
        text.starts_with("cannot listen on 127.0.0.1:")
            && text.ends_with("choose another address with --listen"),
        "{text}"
    );
}

#[tokio::test]
async fn two_controllers_of_one_name_are_refused() {
    let place = Place::new("names").await;
    let controller = || Widgets::new(one_config_map).controller();
    let manager = Manager::new("test-operator").controller(controller()).controller(controller());
    let started = manager.start(place.identity.config(), place.settings(), CancellationToken::new()).await;
    let error = started.err().unwrap().to_string();
    assert!(error.contains("two controllers are called widget"), "{error}");
}
