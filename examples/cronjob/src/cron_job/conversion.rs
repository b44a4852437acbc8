//! Between the versions of CronJob: each is converted to v1, which is stored, and back.
//!
//! Nothing is lost on the way there and back. Only the schedule differs, so nothing else is even read. v1 can say more
//! than v2: `@daily`, or spaces as somebody likes them. What v2 cannot say is in an annotation while the object is v2,
//! and counts for as long as nobody changes the schedule there.

use serde_json::{Value, json};

use super::v2::CronSchedule;

const STORED: &str = "batch.tutorial.kubebuilder.io/v1";
const V2: &str = "batch.tutorial.kubebuilder.io/v2";

/// The schedule as v1 has it, where its fields would not tell.
const TEXT: &str = "batch.tutorial.kubebuilder.io/schedule-text";

/// What cron calls by name.
const NAMES: [(&str, &str); 6] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// An object of one version as one of another.
///
/// # Errors
/// When it is of a version that is not known, or does not fit it.
pub fn convert(mut object: Value, wanted: &str) -> Result<Value, String> {
    let given = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    match (given.as_str(), wanted) {
        (STORED, V2) => to_v2(&mut object)?,
        (V2, STORED) => to_v1(&mut object)?,
        (STORED, STORED) | (V2, V2) => {}
        (STORED | V2, other) | (other, _) => return Err(format!("{other} is not known")),
    }
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), wanted.into());
    }
    Ok(object)
}

fn to_v2(object: &mut Value) -> Result<(), String> {
    let text = schedule(object)?.as_str().ok_or("spec.schedule is no text")?.to_owned();
    let fields = fields_of(&text);
    let fields_tell = text_of(&fields).is_ok_and(|told| told == text);
    *schedule(object)? = json!(fields);
    remember(object, Some(text).filter(|_| !fields_tell));
    Ok(())
}

fn to_v1(object: &mut Value) -> Result<(), String> {
    let fields: CronSchedule = serde_json::from_value(schedule(object)?.clone())
        .map_err(|error| format!("spec.schedule: {error}"))?;
    // Who changed the fields means these.
    let remembered = remember(object, None).filter(|text| fields_of(text) == fields);
    *schedule(object)? = remembered.map_or_else(|| text_of(&fields), Ok)?.into();
    Ok(())
}

fn schedule(object: &mut Value) -> Result<&mut Value, String> {
    object.pointer_mut("/spec/schedule").ok_or_else(|| "spec.schedule is missing".to_owned())
}

/// The fields of a text. One that is no schedule makes fields that are none either, so that nothing runs by mistake.
fn fields_of(text: &str) -> CronSchedule {
    let named = NAMES.iter().find(|(name, _)| text.trim().eq_ignore_ascii_case(name));
    let mut words = named.map_or(text, |(_, fields)| fields).split_whitespace();
    let mut next = || words.next().unwrap_or_default().to_owned();
    let (minute, hour, day_of_month, month) = (next(), next(), next(), next());
    CronSchedule { minute, hour, day_of_month, month, day_of_week: words.collect::<Vec<_>>().join(" ") }
}

/// The text of fields; if one is more than a word, or none, it would be the next field's.
fn text_of(fields: &CronSchedule) -> Result<String, String> {
    let CronSchedule { minute, hour, day_of_month, month, day_of_week } = fields;
    let words = [
        ("minute", minute),
        ("hour", hour),
        ("dayOfMonth", day_of_month),
        ("month", month),
        ("dayOfWeek", day_of_week),
    ];
    match words.iter().find(|(_, word)| word.is_empty() || word.contains(char::is_whitespace)) {
        Some((name, word)) => {
            Err(format!("spec.schedule.{name} must be one word, such as 0,30 or */5, and not {word:?}"))
        }
        None => Ok(words.map(|(_, word)| word.as_str()).join(" ")),
    }
}

/// Remembers a text in the annotation, or forgets it; and tells what was there.
fn remember(object: &mut Value, text: Option<String>) -> Option<String> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    let there = annotations.as_object_mut().and_then(|annotations| match text {
        Some(text) => annotations.insert(TEXT.to_owned(), text.into()),
        None => annotations.remove(TEXT),
    });
    // Whoever had no annotations has none.
    if annotations.as_object().is_none_or(serde_json::Map::is_empty) {
        metadata.remove("annotations");
    }
    there.as_ref().and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cron_job::schedule::Schedule;

    fn v1(schedule: &str) -> Value {
        json!({
            "apiVersion": STORED, "kind": "CronJob", "metadata": {"name": "one", "annotations": {"other": "1"}},
            "spec": {"schedule": schedule, "jobTemplate": {"spec": {"parallelism": 2}}}, "status": {"active": ["one-1"]},
        })
    }

    fn v2(fields: &CronSchedule) -> Value {
        let mut object = v1("");
        object["apiVersion"] = V2.into();
        object["spec"]["schedule"] = json!(fields);
        object
    }

    fn converted(object: &Value, wanted: &str) -> Value {
        convert(object.clone(), wanted).unwrap()
    }

    proptest! {
        #[test]
        fn nothing_is_lost_on_the_way_from_v1_and_back(
            schedule in r"(@daily|@Weekly|[0-9*/, -]{0,20}|.*)", has_annotations: bool,
        ) {
            let mut object = v1(&schedule);
            if !has_annotations {
                object["metadata"].as_object_mut().unwrap().remove("annotations");
            }
            prop_assert_eq!(converted(&converted(&object, V2), STORED), object);
        }

        #[test]
        fn nothing_is_lost_on_the_way_from_v2_and_back(fields in prop::array::uniform5(r"\S{1,6}")) {
            let [minute, hour, day_of_month, month, day_of_week] = fields;
            let object = v2(&CronSchedule { minute, hour, day_of_month, month, day_of_week });
            prop_assert_eq!(converted(&converted(&object, STORED), V2), object);
        }
    }

    #[test]
    fn a_text_becomes_fields() {
        let object = converted(&v1("*/5 3 * * 1-5"), V2);
        assert_eq!(object["apiVersion"], V2);
        let fields =
            json!({"minute": "*/5", "hour": "3", "dayOfMonth": "*", "month": "*", "dayOfWeek": "1-5"});
        assert_eq!(object["spec"]["schedule"], fields);
        assert_eq!(object["metadata"]["annotations"], json!({"other": "1"}), "the fields tell it all");
    }

    #[test]
    fn a_name_is_kept_until_somebody_changes_the_fields() {
        let mut object = converted(&v1("@daily"), V2);
        assert_eq!(object["spec"]["schedule"]["hour"], "0");
        assert_eq!(converted(&object, STORED)["spec"]["schedule"], "@daily");
        object["spec"]["schedule"]["hour"] = "4".into();
        let changed = converted(&object, STORED);
        assert_eq!(changed["spec"]["schedule"], "0 4 * * *");
        assert_eq!(changed["metadata"]["annotations"], json!({"other": "1"}));
    }

    #[test]
    fn names_mean_what_cron_means_by_them() {
        let now = "2026-05-02T10:07:11Z".parse().unwrap();
        for (name, fields) in NAMES {
            let next = |text| Schedule::parse(text).unwrap().next(now);
            assert_eq!(next(name), next(fields), "{name}");
        }
    }

    #[test]
    fn what_is_no_schedule_does_not_become_one() {
        for text in ["every night", "0 0 3 * * *", "@nightly", ""] {
            let mut object = converted(&v1(text), V2);
            assert_eq!(converted(&object, STORED)["spec"]["schedule"], text, "as it was");
            // Also when somebody changes a part of it.
            object["spec"]["schedule"]["hour"] = "4".into();
            assert!(convert(object, STORED).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_field_is_one_word() {
        let mut object = converted(&v1("0 3 * * *"), V2);
        object["spec"]["schedule"]["minute"] = "0 0".into();
        let refused = convert(object, STORED).unwrap_err();
        assert_eq!(refused, "spec.schedule.minute must be one word, such as 0,30 or */5, and not \"0 0\"");
    }

    #[test]
    fn a_version_that_is_not_known_is_refused() {
        assert!(
            convert(v1("@daily"), "batch.tutorial.kubebuilder.io/v3")
                .unwrap_err()
                .contains("v3 is not known")
        );
        let mut other = v1("@daily");
        other["apiVersion"] = "batch.tutorial.kubebuilder.io/v0".into();
        assert!(convert(other, STORED).unwrap_err().contains("v0 is not known"));
    }
}
