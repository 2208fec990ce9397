//! Estimate: what a model's training takes, counted from its tensors, and how sure each part is.
//!
//! Arithmetic only. Never knows a trace or a page of text. Where the rules come from stands in
//! `docs/estimate.md`.

use blockyard::tensor::DType;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the allocator rounds sizes to.
const UNIT: u128 = 512;
/// Smaller tensors keep states of 32 bits in the 8-bit optimizer.
const SMALLEST_8BIT: u128 = 4096;
/// Elements that share a scale in the 8-bit optimizer.
const BLOCK_8BIT: u128 = 256;

/// What steps on the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Inference: no gradients and no states.
    None,
    /// No state.
    Sgd,
    /// One state for each parameter.
    Momentum,
    /// Two states for each parameter.
    Adam,
    /// Two states for each parameter.
    #[default]
    Adamw,
    /// Two states of one byte, and a scale for each 256 of them.
    #[serde(rename = "adamw-8bit")]
    #[value(name = "adamw-8bit")]
    Adamw8bit,
}

/// Tensors of one shape and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Elements of one tensor.
    pub elements: u128,
    /// The type of its elements.
    pub dtype: DType,
    /// How many of them there are.
    pub count: u128,
    /// Whether the optimizer steps on them.
    pub trainable: bool,
}

/// A model, and how it is trained.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its parameters.
    pub parameters: Vec<Group>,
    /// Whether the parameters are single tensors; else `--params` gave only their number.
    pub by_tensor: bool,
    /// What is kept from the forward to the backward pass, as given.
    pub activations: Vec<Group>,
    /// What steps on the parameters.
    pub optimizer: Optimizer,
    /// The type of gradients; `None`: that of their parameter.
    pub gradient: Option<DType>,
    /// Whether the optimizer steps on copies in f32.
    pub master_weights: bool,
}

/// How sure a figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Counted from what was given.
    Exact,
    /// Follows from how the optimizer is known to work.
    Rule,
    /// May be otherwise in the program.
    Guess,
}

/// One part of the estimate. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is for.
    pub part: &'static str,
    /// Elements of all its tensors.
    pub elements: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// The same as the allocator rounds each tensor; `null` where the tensors are not known.
    pub rounded_bytes: Option<u64>,
    /// How sure it is.
    pub basis: Basis,
    /// Why.
    pub note: &'static str,
}

/// All parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Part by part.
    pub rows: Vec<Row>,
    /// What is there between two steps.
    pub static_bytes: u64,
    /// All of it at once.
    pub peak_bytes: u64,
}

/// What no list of tensors shows.
pub const NOT_COUNTED: [&str; 4] = [
    "temporaries of operations and workspaces of libraries",
    "the driver's context and loaded kernels",
    "tensors that autograd keeps and the list of activations does not name",
    "memory that is reserved and not handed out (fragmentation, the cache)",
];

/// A part in the making.
struct Sum {
    elements: u128,
    bytes: u128,
    rounded: u128,
}

impl Sum {
    const fn new() -> Self {
        Self { elements: 0, bytes: 0, rounded: 0 }
    }

    /// So many tensors of so many bytes.
    fn add(&mut self, elements: u128, bytes: u128, count: u128) -> Option<()> {
        let times = |each: u128| each.checked_mul(count);
        self.elements = self.elements.checked_add(times(elements)?)?;
        self.bytes = self.bytes.checked_add(times(bytes)?)?;
        self.rounded = self.rounded.checked_add(times(bytes.checked_next_multiple_of(UNIT)?)?)?;
        Some(())
    }

    fn row(
        self,
        part: &'static str,
        by_tensor: bool,
        basis: Basis,
        note: &'static str,
    ) -> Option<Row> {
        let rounded = u64::try_from(self.rounded).ok()?;
        Some(Row {
            part,
            elements: u64::try_from(self.elements).ok()?,
            bytes: u64::try_from(self.bytes).ok()?,
            rounded_bytes: by_tensor.then_some(rounded),
            basis,
            note,
        })
    }
}

impl Model {
    /// Counts everything; `None`: more than any memory.
    #[must_use]
    pub fn estimate(&self) -> Option<Estimate> {
        let mut rows = vec![self.weights()?];
        if self.optimizer != Optimizer::None {
            rows.push(self.gradients()?);
            rows.extend(self.masters()?);
            rows.extend(self.states()?);
        }
        let sum = |rows: &[Row]| rows.iter().try_fold(0u64, |sum, row| sum.checked_add(row.bytes));
        let static_bytes = sum(&rows)?;
        rows.extend(self.kept()?);
        let peak_bytes = sum(&rows)?;
        Some(Estimate { rows, static_bytes, peak_bytes })
    }

    fn trained(&self) -> impl Iterator<Item = &Group> {
        self.parameters.iter().filter(|group| group.trainable)
    }

    fn weights(&self) -> Option<Row> {
        let mut sum = Sum::new();
        for group in &self.parameters {
            sum.add(group.elements, bytes(group.elements, group.dtype)?, group.count)?;
        }
        sum.row("parameters", self.by_tensor, Basis::Exact, "elements times the size of their type")
    }

    fn gradients(&self) -> Option<Row> {
        let mut sum = Sum::new();
        for group in self.trained() {
            let dtype = self.gradient.unwrap_or(group.dtype);
            sum.add(group.elements, bytes(group.elements, dtype)?, group.count)?;
        }
        let note = "one for each trained parameter, all alive at once at the end of backward";
        sum.row("gradients", self.by_tensor, Basis::Rule, note)
    }

    /// Copies of parameters that are not f32 themselves.
    fn masters(&self) -> Option<Option<Row>> {
        if !self.master_weights {
            return Some(None);
        }
        let mut sum = Sum::new();
        for group in self.trained().filter(|group| group.dtype.size() < DType::F32.size()) {
            sum.add(group.elements, bytes(group.elements, DType::F32)?, group.count)?;
        }
        let note = "a copy in f32 of each trained parameter of a smaller type";
        sum.row("master weights", self.by_tensor, Basis::Rule, note).map(Some)
    }

    /// The type that the optimizer steps on.
    const fn stepped(&self, group: &Group) -> DType {
        if self.master_weights && group.dtype.size() < DType::F32.size() {
            DType::F32
        } else {
            group.dtype
        }
    }

    fn states(&self) -> Option<Option<Row>> {
        let (states, note) = match self.optimizer {
            Optimizer::None | Optimizer::Sgd => return Some(None),
            Optimizer::Momentum => (1, "one state of the type that is stepped on"),
            Optimizer::Adam | Optimizer::Adamw => (2, "two states of the type that is stepped on"),
            Optimizer::Adamw8bit => {
                (2, "two states of a byte, a scale in f32 for each 256; f32 below 4096 elements")
            }
        };
        let mut sum = Sum::new();
        for group in self.trained() {
            let count = group.count.checked_mul(states)?;
            if self.optimizer == Optimizer::Adamw8bit {
                if group.elements < SMALLEST_8BIT {
                    sum.add(group.elements, bytes(group.elements, DType::F32)?, count)?;
                    continue;
                }
                sum.add(group.elements, group.elements, count)?;
                sum.add(0, bytes(group.elements.div_ceil(BLOCK_8BIT), DType::F32)?, count)?;
            } else {
                let each = bytes(group.elements, self.stepped(group))?;
                sum.add(group.elements, each, count)?;
            }
        }
        sum.row("optimizer states", self.by_tensor, Basis::Rule, note).map(Some)
    }

    fn kept(&self) -> Option<Option<Row>> {
        if self.activations.is_empty() {
            return Some(None);
        }
        let mut sum = Sum::new();
        for group in &self.activations {
            sum.add(group.elements, bytes(group.elements, group.dtype)?, group.count)?;
        }
        let note = "the list that was given, taken to be alive all at once";
        sum.row("activations", true, Basis::Guess, note).map(Some)
    }
}

fn bytes(elements: u128, dtype: DType) -> Option<u128> {
    elements.checked_mul(dtype.size() as u128)
}

#[cfg(test)]
mod tests {
    use super::{Basis, Group, Model, Optimizer};
    use blockyard::tensor::DType;

    fn model(tensors: &[(u128, DType)], optimizer: Optimizer, master_weights: bool) -> Model {
        let group = |&(elements, dtype): &(u128, DType)| Group {
            elements,
            dtype,
            count: 1,
            trainable: true,
        };
        Model {
            parameters: tensors.iter().map(group).collect(),
            by_tensor: true,
            activations: Vec::new(),
            optimizer,
            gradient: None,
            master_weights,
        }
    }

    fn parts(model: &Model) -> Vec<(&'static str, u64)> {
        let estimate = model.estimate().expect("small enough");
        estimate.rows.iter().map(|row| (row.part, row.bytes)).collect()
    }

    /// Mixed precision with Adam takes 16 bytes a parameter: 2 + 2 + 4 + 8.
    #[test]
    fn seven_billion_parameters_by_hand() {
        const N: u128 = 7_000_000_000;
        let bf16 = |optimizer, master| parts(&model(&[(N, DType::BF16)], optimizer, master));
        let plain = [("parameters", 14_000_000_000), ("gradients", 14_000_000_000)];
        assert_eq!(bf16(Optimizer::None, false), plain[..1]);
        assert_eq!(bf16(Optimizer::Sgd, false), plain);
        assert_eq!(bf16(Optimizer::Adamw, false)[2], ("optimizer states", 28_000_000_000));
        let mixed = bf16(Optimizer::Adam, true);
        assert_eq!(mixed[2], ("master weights", 28_000_000_000));
        assert_eq!(mixed[3], ("optimizer states", 56_000_000_000));
        assert_eq!(mixed.iter().map(|part| part.1).sum::<u64>(), 16 * N as u64);
        // 7e9 / 256 = 27,343,750 scales of 4 bytes for each of two states.
        let small = bf16(Optimizer::Adamw8bit, false)[2].1;
        assert_eq!(small, 2 * (7_000_000_000 + 4 * 27_343_750));
    }

    #[test]
    fn each_optimizer_on_a_million_floats() {
        for (optimizer, bytes) in [
            (Optimizer::None, 4_000_000),
            (Optimizer::Sgd, 8_000_000),
            (Optimizer::Momentum, 12_000_000),
            (Optimizer::Adam, 16_000_000),
            (Optimizer::Adamw, 16_000_000),
        ] {
            let model = model(&[(1_000_000, DType::F32)], optimizer, true);
            let estimate = model.estimate().expect("small");
            assert_eq!(estimate.static_bytes, bytes, "{optimizer:?}: f32 needs no copies in f32");
        }
    }

    #[test]
    fn tensors_are_rounded_one_by_one_and_small_ones_keep_32_bits() {
        let model =
            model(&[(1_000_000, DType::F32), (1000, DType::F32)], Optimizer::Adamw8bit, false);
        let estimate = model.estimate().expect("small");
        // 7,813 and 8 units of 512.
        assert_eq!(estimate.rows[0].rounded_bytes, Some(4_000_256 + 4096));
        // 3,907 blocks; 1000 elements stay in f32.
        assert_eq!(estimate.rows[2].bytes, 2 * (1_000_000 + 4 * 3907) + 2 * 4000);
    }

    #[test]
    fn frozen_parameters_have_no_gradients_and_activations_are_a_guess() {
        let mut model = model(&[(100, DType::F32), (50, DType::F16)], Optimizer::Adam, false);
        model.parameters[0].trainable = false;
        model.gradient = Some(DType::F32);
        // 8 x 2048 x 4096 of two bytes, 32 of them: 4 GiB.
        model.activations.push(Group {
            elements: 8 * 2048 * 4096,
            dtype: DType::BF16,
            count: 32,
            trainable: false,
        });
        let estimate = model.estimate().expect("small");
        let bytes: Vec<u64> = estimate.rows.iter().map(|row| row.bytes).collect();
        assert_eq!(bytes, [400 + 100, 200, 200, 4 << 30]);
        assert_eq!(estimate.rows[3].basis, Basis::Guess);
        assert_eq!(estimate.peak_bytes - estimate.static_bytes, 4 << 30);
    }

    #[test]
    fn more_than_any_memory_is_no_estimate() {
        for elements in [u128::MAX, 1 << 100, 1 << 62] {
            assert_eq!(model(&[(elements, DType::F64)], Optimizer::Adam, false).estimate(), None);
        }
    }
}
