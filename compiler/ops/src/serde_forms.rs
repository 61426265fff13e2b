//! Attribute forms that serde has no form for.

/// An element type by its name, for `#[serde(with = "data_type_name")]`.
pub(crate) mod data_type_name {
    use hone_types::DataType;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(value.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// An element type by its name, where there is one, for `#[serde(with = "some_data_type_name")]`.
pub(crate) mod some_data_type_name {
    use hone_types::DataType;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub fn serialize<S: Serializer>(
        value: &Option<DataType>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(DataType::name).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<DataType>, D::Error> {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(D::Error::custom)).transpose()
    }
}

/// A number that may be infinite or not a number, which JSON writes as `null`: those are strings.
pub(crate) mod any_number {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Finite(f64),
        Named(String),
    }

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() {
            serializer.serialize_f64(*value)
        } else {
            serializer.serialize_str(&value.to_string())
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        match Form::deserialize(deserializer)? {
            Form::Finite(value) => Ok(value),
            Form::Named(text) => text.parse().map_err(D::Error::custom),
        }
    }
}
