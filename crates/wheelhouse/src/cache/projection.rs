//! Projections: types that hold only the fields an operator declares.

/// Declares a type that holds some fields of a kind and nothing else of it.
///
/// What is not declared is skipped while the object is parsed and takes no
/// memory. A projection is read like any other type (`cache.lister::<...>()`,
/// `.owns::<...>()`), and can never be written: the compiler refuses it in a plan.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use serde::{Deserialize, Serialize};
///
/// wheelhouse::projection! {
///     /// Where a pod runs.
///     pub struct PodPlace of Pod {
///         spec: Place,
///     }
/// }
///
/// /// The part of a pod's spec that is read.
/// #[derive(Clone, Debug, Default, Serialize, Deserialize)]
/// #[serde(rename_all = "camelCase")]
/// pub struct Place {
///     node_name: Option<String>,
/// }
///
/// let pod = r#"{"metadata": {"name": "a"}, "spec": {"nodeName": "n1", "containers": []}}"#;
/// let place: PodPlace = serde_json::from_str(pod).unwrap();
/// assert_eq!(place.spec.node_name.as_deref(), Some("n1"));
/// ```
#[macro_export]
macro_rules! projection {
    ($(#[$attribute:meta])* $visibility:vis struct $name:ident of $kind:ty {
        $($(#[$field_attribute:meta])* $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, $crate::serde::Serialize, $crate::serde::Deserialize)]
        #[serde(crate = "wheelhouse::serde", rename_all = "camelCase")]
        $visibility struct $name {
            /// The object's metadata.
            #[serde(default)]
            pub metadata: $crate::kube::core::ObjectMeta,
            $(
                /// A declared field.
                $(#[$field_attribute])*
                #[serde(default)]
                pub $field: $type,
            )*
        }

        impl $crate::kube::Resource for $name {
            type DynamicType = <$kind as $crate::kube::Resource>::DynamicType;
            type Scope = $crate::kind::Projected<<$kind as $crate::kube::Resource>::Scope>;

            fn kind(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as $crate::kube::Resource>::kind(dynamic)
            }
            fn group(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as $crate::kube::Resource>::group(dynamic)
            }
            fn version(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as $crate::kube::Resource>::version(dynamic)
            }
            fn plural(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                <$kind as $crate::kube::Resource>::plural(dynamic)
            }
            fn meta(&self) -> &$crate::kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut $crate::kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
