//! Model file: a model's tensors as JSON or TOML, or as words of the command line.
//!
//! Says what is wrong and what was expected. The format stands in `docs/estimate.md`.

use std::path::Path;

use blockyard::tensor::DType;
use serde::Deserialize;

use crate::estimate::{Group, Optimizer};

/// What a file can say. What the command line says besides goes before it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    /// Parameters, tensor by tensor.
    #[serde(default)]
    pub parameters: Vec<Entry>,
    /// What the forward pass keeps.
    #[serde(default)]
    pub activations: Vec<Entry>,
    /// What steps on the parameters.
    pub optimizer: Option<Optimizer>,
    /// The type of tensors that do not say theirs.
    pub dtype: Option<String>,
    /// The type of gradients.
    pub gradient_dtype: Option<String>,
    /// Whether the optimizer steps on copies in f32.
    pub master_weights: Option<bool>,
}

/// Tensors of one shape.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// For people.
    #[serde(default)]
    pub name: String,
    /// The size of each axis.
    pub shape: Vec<u64>,
    /// The type of the elements.
    pub dtype: Option<String>,
    /// How many there are of it; 1 if nothing is said.
    pub count: Option<u64>,
    /// Whether it is trained; yes if nothing is said.
    pub trainable: Option<bool>,
}

impl ModelFile {
    /// Reads a file; its suffix says the format.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, String> {
        let suffix = path.extension().and_then(|suffix| suffix.to_str());
        if !matches!(suffix, Some("toml" | "json")) {
            return Err("is neither .json nor .toml; recordings are given by --trace".to_string());
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot be read: {error}; expected a model file"))?;
        if suffix == Some("toml") {
            return toml::from_str(&text).map_err(|error| error.to_string());
        }
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

impl Entry {
    /// The tensors it stands for.
    ///
    /// # Errors
    /// An unknown type, or a shape larger than any memory.
    pub fn group(&self, dtype: DType) -> Result<Group, String> {
        let dtype = self.dtype.as_deref().map_or(Ok(dtype), dtype_of)?;
        let elements = self.shape.iter().try_fold(1u128, |sum, &size| {
            sum.checked_mul(u128::from(size)).filter(|&sum| sum <= u128::from(u64::MAX))
        });
        let what = if self.name.is_empty() { "a tensor" } else { &self.name };
        let elements = elements
            .ok_or_else(|| format!("{what}: shape {:?} is larger than any memory", self.shape))?;
        let (count, trainable) = (self.count.unwrap_or(1), self.trainable.unwrap_or(true));
        Ok(Group { elements, dtype, count: u128::from(count), trainable })
    }
}

/// `bf16`, or PyTorch's `bfloat16`, `torch.float32` and so on.
///
/// # Errors
/// Names the types there are.
pub fn dtype_of(text: &str) -> Result<DType, String> {
    let plain = text.trim_start_matches("torch.");
    let long = match plain {
        "float64" | "double" => Some(DType::F64),
        "float32" | "float" => Some(DType::F32),
        "float16" | "half" => Some(DType::F16),
        "bfloat16" => Some(DType::BF16),
        "int64" | "long" => Some(DType::I64),
        "int32" | "int" => Some(DType::I32),
        "int16" => Some(DType::I16),
        "int8" => Some(DType::I8),
        "uint8" => Some(DType::U8),
        _ => None,
    };
    let short = || DType::ALL.into_iter().find(|dtype| dtype.name() == plain);
    long.or_else(short).ok_or_else(|| {
        let names = DType::ALL.map(DType::name).join(", ");
        format!("{text:?} is no type, expected one of {names}")
    })
}

/// A number of parameters: `7e9`, `7B`, `124M`, `350_000`.
///
/// # Errors
/// Says what was expected.
pub fn parameters(text: &str) -> Result<u64, String> {
    let expected = || format!("{text:?} is not a number of parameters, expected 7e9, 7B or 124M");
    let plain = text.replace(['_', ','], "");
    let scale = match plain.chars().last().map(|c| c.to_ascii_lowercase()) {
        Some('k') => 1e3,
        Some('m') => 1e6,
        Some('b' | 'g') => 1e9,
        Some('t') => 1e12,
        _ => 1.0,
    };
    let digits = if scale > 1.0 { &plain[..plain.len() - 1] } else { &plain };
    let number = digits.parse::<f64>().map_err(|_| expected())? * scale;
    let whole = number.is_finite() && number.fract() == 0.0 && (1.0..1e18).contains(&number);
    if whole { Ok(number as u64) } else { Err(expected()) }
}

/// Tensors as one word: `bf16:8x2048x4096*32`.
///
/// # Errors
/// Says what was expected.
pub fn tensors(text: &str) -> Result<Entry, String> {
    let expected = || format!("{text:?} is not like bf16:8x2048x4096 or bf16:8x2048x4096*32");
    let (dtype, rest) = text.split_once(':').ok_or_else(expected)?;
    dtype_of(dtype)?;
    let (shape, count) = match rest.split_once('*') {
        Some((shape, count)) => (shape, Some(count.parse().map_err(|_| expected())?)),
        None => (rest, None),
    };
    let shape: Result<Vec<u64>, _> = shape.split('x').map(str::parse).collect();
    let (shape, dtype) = (shape.map_err(|_| expected())?, Some(dtype.to_string()));
    Ok(Entry { name: String::new(), shape, dtype, count, trainable: None })
}

#[cfg(test)]
mod tests {
    use super::{dtype_of, parameters, tensors};
    use blockyard::tensor::DType;

    #[test]
    fn numbers_of_parameters_read_as_people_type_them() {
        for (text, number) in
            [("7e9", 7_000_000_000), ("7B", 7_000_000_000), ("124M", 124_000_000), ("1_000", 1000)]
        {
            assert_eq!(parameters(text), Ok(number), "{text}");
        }
        for text in ["", "B", "-1", "0", "1.5", "1e30", "seven", "NaN"] {
            assert!(parameters(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tensors_read_as_one_word() {
        let group = tensors("bf16:8x4*32").and_then(|entry| entry.group(DType::F32)).expect("read");
        assert_eq!((group.elements, group.dtype, group.count), (32, DType::BF16, 32));
        assert_eq!(dtype_of("torch.float32"), Ok(DType::F32));
        for text in ["8x4", "bf16:", "bf16:8x", "bf17:8", "bf16:8*x"] {
            assert!(tensors(text).is_err(), "{text}");
        }
        let large = tensors("u8:9999999999x9999999999").expect("read");
        assert!(large.group(DType::U8).is_err());
    }
}
