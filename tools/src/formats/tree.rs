//! Tree: what a snapshot's schema needs to know of a value, whether it came from a pickle or from
//! JSON.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::arena::{Arena, Node, Object, Value};
use super::error::{Place, Wrong};

/// A value of a snapshot.
pub(crate) trait Tree: Copy {
    /// The integer that it is.
    fn integer(self) -> Option<i128>;
    /// The text that it is.
    fn text(self) -> Option<Cow<'static, str>>;
    /// The bool that it is.
    fn bool(self) -> Option<bool>;
    /// Whether it is None or null.
    fn is_none(self) -> bool;
    /// The members of the list or tuple that it is.
    fn items(self) -> Option<Vec<Self>>;
    /// The two naturals that it is.
    fn pair(self) -> Option<(u64, u64)>;
    /// The keys and values of the dict that it is.
    fn entries(self) -> Option<Vec<(Cow<'static, str>, Self)>>;
    /// The value of this key, if it is a dict that has it.
    fn get(self, key: &str) -> Option<Self>;
    /// Whether it is a dict.
    fn is_dict(self) -> bool;
    /// What a person calls it.
    fn describe(self) -> Cow<'static, str>;
    /// The text of a scalar, for settings.
    fn scalar(self) -> Option<String>;
    /// Equal for one object that occurs in several places.
    fn identity(self) -> Option<u32>;
    /// Where it stands.
    fn place(self) -> Option<Place>;

    /// A complaint about it.
    fn wrong(self, what: &str, expected: &str) -> Wrong {
        let wrong = Wrong::new(format!("{what} is {}", self.describe()), expected);
        Wrong { place: self.place(), ..wrong }
    }

    /// The natural number that it must be.
    fn natural(self, what: &str) -> Result<u64, Wrong> {
        self.integer()
            .and_then(|value| u64::try_from(value).ok())
            .ok_or_else(|| self.wrong(what, "a whole number from 0 to 18446744073709551615"))
    }

    /// The members of the list that it must be.
    fn list(self, what: &str) -> Result<Vec<Self>, Wrong> {
        self.items().ok_or_else(|| self.wrong(what, "a list"))
    }

    /// The natural number at a key; nothing if the key is missing or None.
    fn natural_at(self, key: &str, what: &str) -> Result<Option<u64>, Wrong> {
        match self.get(key) {
            Some(value) if !value.is_none() => {
                value.natural(&format!("{what}: {key}")).map(Some).map_err(|wrong| self.at(wrong))
            }
            _ => Ok(None),
        }
    }

    /// The complaint, at this value's place unless it has one.
    fn at(self, wrong: Wrong) -> Wrong {
        Wrong { place: wrong.place.or(self.place()), ..wrong }
    }
}

/// A value of a pickle.
#[derive(Clone, Copy)]
pub(crate) struct Pickled<'p, 'a> {
    /// Where its parts are.
    pub arena: &'p Arena<'a>,
    /// The value.
    pub value: Value,
}

impl<'p> Pickled<'p, '_> {
    fn with(self, value: Value) -> Self {
        Self { value, ..self }
    }

    fn node(self) -> Option<u32> {
        match self.value {
            Value::Object(Object::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// Keys and values, in turn.
    fn dict(self) -> Option<&'p [Value]> {
        match self.arena.content(self.node()?)? {
            (Node::EmptyDict | Node::Dict(_), items) => Some(items),
            _ => None,
        }
    }

    /// The bytes of the text that it is.
    #[inline]
    pub fn bytes(self) -> Option<&'p [u8]> {
        match self.value {
            Value::Object(object) => self.arena.text(object),
            _ => None,
        }
    }
}

impl Tree for Pickled<'_, '_> {
    #[inline]
    fn integer(self) -> Option<i128> {
        match self.value {
            Value::Int(value) => Some(value.into()),
            Value::Nat(value) => Some(value.into()),
            _ => None,
        }
    }

    fn text(self) -> Option<Cow<'static, str>> {
        self.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned().into())
    }

    fn bool(self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    fn is_none(self) -> bool {
        self.value == Value::None
    }

    fn items(self) -> Option<Vec<Self>> {
        match self.arena.content(self.node()?)? {
            (Node::EmptyList | Node::List(_) | Node::Tuple(_), values) => {
                Some(values.iter().map(|&value| self.with(value)).collect())
            }
            _ => None,
        }
    }

    #[inline]
    fn pair(self) -> Option<(u64, u64)> {
        let Value::Object(object) = self.value else { return None };
        if let Some(pair) = self.arena.pair_of(object) {
            return Some(pair);
        }
        pair_of_items(self)
    }

    fn entries(self) -> Option<Vec<(Cow<'static, str>, Self)>> {
        let pairs = self.dict()?.chunks_exact(2);
        let entry = |pair: &[Value]| Some((self.with(pair[0]).text()?, self.with(pair[1])));
        Some(pairs.filter_map(entry).collect())
    }

    fn get(self, key: &str) -> Option<Self> {
        let mut pairs = self.dict()?.rchunks_exact(2);
        let pair = pairs.find(|pair| self.with(pair[0]).bytes() == Some(key.as_bytes()))?;
        Some(self.with(pair[1]))
    }

    fn is_dict(self) -> bool {
        self.dict().is_some()
    }

    fn describe(self) -> Cow<'static, str> {
        self.arena.describe(self.value)
    }

    fn scalar(self) -> Option<String> {
        Some(match self.value {
            Value::None => "None".into(),
            Value::Bool(value) => value.to_string(),
            Value::Float(value) => value.to_string(),
            Value::Int(_) | Value::Nat(_) => self.integer()?.to_string(),
            _ => self.text()?.into_owned(),
        })
    }

    fn identity(self) -> Option<u32> {
        self.node()
    }

    fn place(self) -> Option<Place> {
        self.arena.place(self.node()?).map(Place::Byte)
    }
}

impl Tree for &Json {
    fn integer(self) -> Option<i128> {
        self.as_i64().map(i128::from).or_else(|| self.as_u64().map(i128::from))
    }

    fn text(self) -> Option<Cow<'static, str>> {
        self.as_str().map(|text| text.to_string().into())
    }

    fn bool(self) -> Option<bool> {
        self.as_bool()
    }

    fn is_none(self) -> bool {
        self.is_null()
    }

    fn items(self) -> Option<Vec<Self>> {
        self.as_array().map(|items| items.iter().collect())
    }

    fn pair(self) -> Option<(u64, u64)> {
        pair_of_items(self)
    }

    fn entries(self) -> Option<Vec<(Cow<'static, str>, Self)>> {
        let entries = self.as_object()?.iter();
        Some(entries.map(|(key, value)| (key.clone().into(), value)).collect())
    }

    fn get(self, key: &str) -> Option<Self> {
        Json::get(self, key)
    }

    fn is_dict(self) -> bool {
        self.is_object()
    }

    fn describe(self) -> Cow<'static, str> {
        match self {
            Json::Null => "null".into(),
            Json::Bool(_) => "a bool".into(),
            Json::Number(number) => format!("the number {number}").into(),
            Json::String(_) => "a string".into(),
            Json::Array(_) => "a list".into(),
            Json::Object(_) => "an object".into(),
        }
    }

    fn scalar(self) -> Option<String> {
        match self {
            Json::Null => Some("None".into()),
            Json::String(text) => Some(text.clone()),
            Json::Number(number) => {
                Some(number.as_i64().map_or_else(|| float(number), |value| value.to_string()))
            }
            Json::Bool(value) => Some(value.to_string()),
            Json::Array(_) | Json::Object(_) => None,
        }
    }

    fn identity(self) -> Option<u32> {
        None
    }

    fn place(self) -> Option<Place> {
        None
    }
}

fn float(number: &serde_json::Number) -> String {
    number.as_f64().map_or_else(|| number.to_string(), |value| value.to_string())
}

fn pair_of_items<T: Tree>(value: T) -> Option<(u64, u64)> {
    let items = value.items()?;
    let [a, b] = items[..] else { return None };
    let natural = |item: T| u64::try_from(item.integer()?).ok();
    Some((natural(a)?, natural(b)?))
}
