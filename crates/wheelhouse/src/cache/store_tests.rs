use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;

use super::*;

fn object(name: &str, version: u64, uid: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("n".to_owned()),
            resource_version: Some(version.to_string()),
            uid: Some(uid.to_owned()),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn labelled(name: &str, version: u64, colour: &str) -> ConfigMap {
    let mut object = object(name, version, name);
    object.metadata.labels = Some(BTreeMap::from([("colour".to_owned(), colour.to_owned())]));
    object
}

fn store() -> Store<ConfigMap> {
    Store::new()
}

fn put(store: &mut Store<ConfigMap>, origin: Origin, object: ConfigMap) -> bool {
    matches!(store.put(origin, Ok(object), None), Put::Stored { .. })
}

fn names(objects: impl IntoIterator<Item = Arc<ConfigMap>>) -> Vec<String> {
    objects.into_iter().map(|object| object.metadata.name.clone().unwrap()).collect()
}

fn all(store: &Store<ConfigMap>) -> Vec<String> {
    names(store.list(None))
}

fn key(name: &str) -> Key {
    Key::namespaced("n", name)
}

#[test]
fn an_older_version_and_the_same_one_are_refused() {
    let mut store = store();
    assert!(put(&mut store, Origin::Watch, object("a", 9, "u")));
    assert!(!put(&mut store, Origin::Watch, object("a", 9, "u")));
    // As a number: as text, "10" would be older than "9".
    assert!(put(&mut store, Origin::Watch, object("a", 10, "u")));
    assert!(!put(&mut store, Origin::List, object("a", 9, "u")));
}

#[test]
fn an_answered_deletion_is_not_undone_by_an_event_from_before() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("a", 1, "u"));
    assert!(store.remove_answered(&key("a"), Some("u")).is_some());
    assert!(!put(&mut store, Origin::Watch, object("a", 2, "u")), "an event that was on its way");
    assert!(all(&store).is_empty());
    assert!(store.remove_watched(&object("a", 3, "u").metadata).is_none(), "it was reported already");
    assert!(put(&mut store, Origin::Watch, object("a", 4, "successor")));
}

#[test]
fn a_successor_of_what_we_deleted_is_welcome_at_once() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("a", 1, "u"));
    store.remove_answered(&key("a"), Some("u"));
    assert!(put(&mut store, Origin::Answer, object("a", 3, "successor")));
    assert!(
        store.remove_watched(&object("a", 2, "u").metadata).is_none(),
        "the late event is about the other one"
    );
    assert_eq!(all(&store), ["a"]);
}

#[test]
fn an_answer_about_another_object_of_that_name_removes_nothing() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("a", 5, "new"));
    assert!(store.remove_answered(&key("a"), Some("old")).is_none());
    assert_eq!(all(&store), ["a"]);
}

#[test]
fn what_a_list_did_not_hold_has_vanished() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("kept", 1, "1"));
    put(&mut store, Origin::Watch, object("gone", 2, "2"));
    store.begin_list(None);
    put(&mut store, Origin::List, object("kept", 1, "1"));
    put(&mut store, Origin::List, object("new", 3, "3"));
    let listed = store.end_list(&None);
    assert_eq!(names(listed.vanished), ["gone"]);
    assert!(listed.doubtful.is_empty());
    assert_eq!(all(&store), ["kept", "new"]);
}

#[test]
fn what_we_wrote_during_a_list_is_asked_for() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("changed", 1, "1"));
    store.begin_list(None);
    put(&mut store, Origin::Answer, object("changed", 5, "1"));
    put(&mut store, Origin::Answer, object("created", 6, "2"));
    put(&mut store, Origin::Answer, object("listed", 4, "3"));
    put(&mut store, Origin::List, object("listed", 4, "3"));
    let listed = store.end_list(&None);
    assert!(listed.vanished.is_empty());
    let mut doubtful = listed.doubtful;
    doubtful.sort();
    assert_eq!(doubtful, [key("changed"), key("created")]);
}

#[test]
fn what_a_list_held_is_not_asked_for_whoever_wrote_it_meanwhile() {
    let mut store = store();
    store.begin_list(None);
    put(&mut store, Origin::List, object("listed-first", 1, "a"));
    put(&mut store, Origin::Answer, object("listed-first", 5, "a"));
    put(&mut store, Origin::Answer, object("written-first", 6, "b"));
    put(&mut store, Origin::List, object("written-first", 2, "b"));
    assert!(store.end_list(&None).doubtful.is_empty(), "the watch goes on from the list");
    assert_eq!(store.get(&key("written-first")).unwrap().metadata.resource_version.as_deref(), Some("6"));
}

#[test]
fn a_list_that_began_before_a_deletion_does_not_undo_it() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("a", 1, "u"));
    store.begin_list(None);
    store.remove_answered(&key("a"), Some("u"));
    put(&mut store, Origin::List, object("a", 1, "u"));
    store.end_list(&None);
    assert!(all(&store).is_empty());
    assert!(!put(&mut store, Origin::Watch, object("a", 2, "u")), "the watch has not said so yet");
    store.begin_list(None);
    store.end_list(&None);
    assert!(store.deleted.is_empty(), "a list that began later knows");
}

#[test]
fn a_list_of_one_namespace_says_nothing_of_another() {
    let mut store = store();
    let mut other = object("a", 1, "u");
    other.metadata.namespace = Some("n2".to_owned());
    put(&mut store, Origin::Watch, other);
    put(&mut store, Origin::Watch, object("b", 1, "v"));
    let part: Option<Arc<str>> = Some("n".into());
    store.begin_list(part.clone());
    assert_eq!(names(store.end_list(&part).vanished), ["b"]);
    assert_eq!(all(&store), ["a"]);
}

#[test]
fn an_index_follows_changes() {
    let mut store = store();
    put(&mut store, Origin::Watch, labelled("early", 1, "red"));
    store.add_index(
        "colour".into(),
        Arc::new(|object: &ConfigMap| {
            object.metadata.labels.iter().flat_map(|labels| labels.values().cloned()).collect()
        }),
    );
    put(&mut store, Origin::Answer, labelled("a", 2, "red"));
    assert_eq!(names(store.find("colour", "red")), ["a", "early"]);
    put(&mut store, Origin::Answer, labelled("a", 3, "blue"));
    assert_eq!(names(store.find("colour", "red")), ["early"]);
    assert_eq!(names(store.find("colour", "blue")), ["a"]);
    store.remove_answered(&key("a"), None);
    assert!(store.find("colour", "blue").is_empty());
}

#[test]
fn an_answer_from_before_does_not_bring_back_what_the_watch_said_is_gone() {
    let mut store = store();
    put(&mut store, Origin::Watch, object("a", 1, "u"));
    store.remove_watched(&object("a", 5, "u").metadata);
    assert!(
        !put(&mut store, Origin::Answer, object("a", 4, "u")),
        "the answer to an apply, or to a live list"
    );
    assert!(
        store.remove_watched(&object("b", 7, "v").metadata).is_none(),
        "created by us and deleted by others"
    );
    assert!(!put(&mut store, Origin::Answer, object("b", 6, "v")), "before the answer to the create came");
    assert!(put(&mut store, Origin::Answer, object("a", 8, "successor")));
    assert_eq!(all(&store), ["a"]);
}

/// An object with a tenth of what is held whole.
fn large(name: &str, version: u64, colour: &str) -> ConfigMap {
    let mut object = labelled(name, version, colour);
    object.data = Some(BTreeMap::from([("text".to_owned(), "x".repeat(WHOLE_BYTES / 10))]));
    object
}

#[test]
fn what_is_packed_is_found_read_replaced_and_removed_like_anything_else() {
    let mut store = store();
    let colours = |object: &ConfigMap| object.metadata.labels.clone().unwrap().into_values().collect();
    store.add_index("colour".into(), Arc::new(colours));
    for number in 0..20 {
        let colour = if number == 7 { "red" } else { "blue" };
        put(&mut store, Origin::List, large(&format!("o-{number:02}"), 1, colour));
    }
    assert_eq!(store.packed_objects, 11, "those that were put first");
    assert!(store.bytes() < WHOLE_BYTES);
    assert_eq!(*store.get(&key("o-07")).unwrap(), large("o-07", 1, "red"));
    assert_eq!(names(store.find("colour", "red")), ["o-07"]);
    assert_eq!(store.list(Some("n")).count(), 20);
    assert!(!put(&mut store, Origin::Watch, large("o-07", 1, "green")), "it is not newer");

    let Put::Stored { old, .. } = store.put(Origin::Watch, Ok(large("o-07", 2, "green")), None) else {
        panic!("it is newer");
    };
    assert_eq!(*old.unwrap(), large("o-07", 1, "red"));
    assert_eq!(store.find("colour", "red").len(), 0);
    assert_eq!(names(store.find("colour", "green")), ["o-07"]);
    assert_eq!(store.packed_objects, 11, "another one took its place among the packed");

    let gone = store.remove_watched(&large("o-03", 3, "blue").metadata).unwrap();
    assert_eq!(*gone, large("o-03", 1, "blue"));
    assert_eq!((store.packed_objects, store.len()), (10, 19));
}

#[test]
fn an_object_that_changes_often_is_not_packed_for_its_older_versions() {
    let mut store = store();
    for version in 1..100 {
        put(&mut store, Origin::Watch, large("busy", version, "blue"));
    }
    assert_eq!(store.packed_objects, 0);
}

fn unreadable(name: &str, version: u64) -> Unreadable {
    Unreadable { metadata: object(name, version, "u").metadata, why: "it does not fit".to_owned() }
}

#[test]
fn what_cannot_be_read_is_neither_listed_nor_taken_for_absent() {
    let mut store = store();
    store.add_index(
        "name".into(),
        Arc::new(|object: &ConfigMap| object.metadata.name.clone().into_iter().collect()),
    );
    put(&mut store, Origin::Watch, object("a", 1, "u"));
    let Put::SetAside { old } = store.put(Origin::Watch, Err(unreadable("a", 3)), None) else { panic!() };
    assert_eq!(names(old), ["a"]);
    assert_eq!((store.get(&key("a")), all(&store).len(), store.len()), (None, 0, 0));
    assert!(store.find("name", "a").is_empty());
    assert!(store.contains(&key("a")));
    assert_eq!(store.unreadable(&key("a")).unwrap().why, "it does not fit");
    assert!(!put(&mut store, Origin::Answer, object("a", 2, "u")), "that was before");
    assert!(put(&mut store, Origin::Watch, object("a", 4, "u")), "it was corrected");
    assert!(store.unreadable(&key("a")).is_none());
    assert_eq!(names(store.find("name", "a")), ["a"]);
}

#[test]
fn what_cannot_be_read_goes_like_anything_else() {
    let mut store = store();
    store.put(Origin::Watch, Err(unreadable("a", 1)), None);
    assert!(store.remove_watched(&object("a", 2, "u").metadata).is_none(), "nobody could read it");
    assert!(!store.contains(&key("a")));
    assert_eq!(store.all_unreadable().count(), 0);
}
