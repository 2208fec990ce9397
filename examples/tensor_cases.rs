//! Cases: random chains of views, copies and casts with their results, as JSON lines for another library to repeat.
//!
//! `cargo run --example tensor_cases -- COUNT SEED`; `tools/compare-torch-tensor.py` reads it. Each line is a program
//! on tensors 0, 1, ...: what was done, and shape, strides, offset and values of what came of it, or that it was
//! refused.
#![allow(clippy::unwrap_used, reason = "an example")]

use blockyard::device::random::Random;
use blockyard::tensor::{DType, Format, Place, Result, Tensor};
use serde_json::{Value, json};

/// One chain over one storage.
struct Story {
    place: Place,
    random: Random,
    tensors: Vec<Tensor>,
    lines: Vec<Value>,
}

impl Story {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end.max(1) as u64) as usize
    }

    fn new(seed: u64) -> Self {
        let mut story = Self {
            place: Place::host(),
            random: Random::new(seed),
            tensors: vec![],
            lines: vec![],
        };
        let rank = story.below(6);
        let shape: Vec<usize> =
            (0..rank).map(|_| story.below(5) + usize::from(!seed.is_multiple_of(7))).collect();
        let dtype = DType::ALL[story.below(10)];
        let count = shape.iter().product::<usize>() as i64;
        let owner = Tensor::arange(&story.place, -count / 2, count - count / 2, 1).unwrap();
        let owner = owner.to(&story.place, dtype, false).unwrap().view(&shape).unwrap();
        story.tell(json!({"op": "start", "dtype": dtype.name(), "shape": shape}), Ok(owner));
        story
    }

    /// Writes down what was done and what came of it.
    fn tell(&mut self, mut what: Value, made: Result<Tensor>) {
        what["result"] = match &made {
            Err(error) => json!({"error": error.to_string()}),
            Ok(tensor) => described(tensor),
        };
        what["first"] =
            described(self.tensors.first().unwrap_or_else(|| made.as_ref().unwrap()))["values"]
                .take();
        self.lines.push(what);
        self.tensors.extend(made);
    }

    fn step(&mut self) {
        let on = self.below(self.tensors.len());
        let tensor = self.tensors[on].clone();
        let rank = tensor.rank();
        if rank > 6 {
            return;
        }
        let axis = self.below(rank);
        let size = tensor.shape().get(axis).copied().unwrap_or(1);
        let (a, b, c) = (self.below(size + 1), self.below(size + 2), self.below(4));
        let args = [axis, a, b, c];
        let (name, made) = match self.below(18) {
            0 => ("narrow", tensor.narrow(axis, a, b)),
            1 => ("slice", tensor.slice(axis, a..b.max(a), c + 1)),
            2 => ("select", tensor.select(axis, a)),
            3 => ("transpose", tensor.transpose(axis, b)),
            4 => ("unfold", tensor.unfold(axis, b, c + 1)),
            5 => ("squeeze", tensor.squeeze()),
            6 => ("unsqueeze", tensor.unsqueeze(b.min(rank))),
            7 => ("flatten", tensor.flatten(axis, b.min(rank.saturating_sub(1)))),
            8 => ("contiguous", tensor.contiguous()),
            9 => ("clone", tensor.duplicate()),
            10 => ("squeeze_axis", tensor.squeeze_axis(axis)),
            11 => return self.shaped(on, &tensor),
            12 => return self.copied(on, &tensor),
            13 => return self.cast(on, &tensor),
            14 => ("fill_", tensor.fill_(c as i64 + 40).map(|()| tensor.clone())),
            15 => (
                "channels_last",
                tensor.to_memory_format(if rank == 5 {
                    Format::ChannelsLast3d
                } else {
                    Format::ChannelsLast
                }),
            ),
            16 => ("permute", tensor.permute(&rotated(rank, axis))),
            _ => return self.expanded(on, &tensor),
        };
        // PyTorch takes axis 0 of a tensor that has none for some of these.
        if rank == 0 && !matches!(name, "squeeze" | "clone" | "contiguous" | "fill_") {
            return;
        }
        self.tell(json!({"op": name, "on": on, "args": args}), made);
    }

    /// `view` or `reshape` to random divisors.
    fn shaped(&mut self, on: usize, tensor: &Tensor) {
        let mut rest = tensor.elements();
        let mut shape = Vec::new();
        for _ in 0..self.below(4) {
            let size = self.below(5) + 1;
            if rest.is_multiple_of(size) {
                shape.push(size);
                rest /= size;
            }
        }
        shape.push(rest);
        let made = tensor.view(&shape);
        self.tell(json!({"op": "view", "on": on, "shape": shape}), made);
        let made = tensor.reshape(&shape);
        self.tell(json!({"op": "reshape", "on": on, "shape": shape}), made);
    }

    fn copied(&mut self, on: usize, tensor: &Tensor) {
        let from = self.below(self.tensors.len());
        let made = tensor.copy_(&self.tensors[from]).map(|()| tensor.clone());
        self.tell(json!({"op": "copy_", "on": on, "from": from}), made);
    }

    fn cast(&mut self, on: usize, tensor: &Tensor) {
        let dtype = DType::ALL[self.below(10)];
        let made = tensor.to(&self.place, dtype, false);
        self.tell(json!({"op": "to", "on": on, "dtype": dtype.name()}), made);
    }

    fn expanded(&mut self, on: usize, tensor: &Tensor) {
        let mut shape = tensor.shape().to_vec();
        for size in shape.iter_mut().filter(|size| **size == 1) {
            *size = self.below(4);
        }
        if self.below(2) == 0 && shape.len() < 6 {
            shape.insert(0, self.below(3));
        }
        if shape.iter().product::<usize>() < 5000 {
            let made = tensor.expand(&shape);
            self.tell(json!({"op": "expand", "on": on, "shape": shape}), made);
        }
    }
}

fn rotated(rank: usize, by: usize) -> Vec<usize> {
    (0..rank).map(|axis| (axis + by) % rank).collect()
}

fn described(tensor: &Tensor) -> Value {
    let format = |format| tensor.is_contiguous(format);
    let place = tensor.place();
    let values = tensor.to(place, DType::F64, false).unwrap().to_vec::<f64>().unwrap();
    json!({
        "shape": tensor.shape(), "strides": tensor.strides(), "offset": tensor.offset(), "dtype": tensor.dtype().name(),
        "contiguous": format(Format::Contiguous), "channels_last": format(Format::ChannelsLast),
        "channels_last_3d": format(Format::ChannelsLast3d), "suggested": tensor.suggest_memory_format().name(),
        "values": values,
    })
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap());
    let (count, seed): (u64, u64) =
        (arguments.next().unwrap_or(100), arguments.next().unwrap_or(1));
    for number in seed..seed + count {
        let mut story = Story::new(number);
        (0..12).for_each(|_| story.step());
        println!("{}", Value::from(story.lines));
    }
}
