//! Tensor: any bytes as a chain of views and writes, beside lists of where each element lies.
//!
//! Owns the model: a view is the list of its elements' places, in the order of the indices; an operation picks from
//! the list. Demanded: X1, the same values, and that an operation is refused exactly where the model has no answer.

use blockyard::tensor::{Place, Tensor, TensorError};

/// A tensor, and where its elements lie.
#[derive(Clone)]
struct Pair {
    tensor: Tensor,
    shape: Vec<usize>,
    places: Vec<usize>,
}

/// Bytes that are taken one after another; none left: zeros.
struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn next(&mut self) -> usize {
        self.0.next().map_or(0, |&byte| byte.into())
    }

    /// A number up to `most`; now and then one beyond it, or beyond everything.
    fn about(&mut self, most: usize) -> usize {
        match self.next() {
            255 => usize::MAX,
            254 => usize::MAX / 2 + 1,
            byte => byte % (most + 2),
        }
    }
}

/// Any bytes as views and writes on the host. Says whether there was at least one operation.
pub fn views(bytes: &[u8]) -> bool {
    let mut bytes = Bytes(bytes.iter());
    let shape: Vec<usize> = (0..bytes.next() % 5).map(|_| bytes.next() % 5).collect();
    let place = Place::host();
    let count: usize = shape.iter().product();
    let values: Vec<i32> = (0..count as i32).collect();
    let made = Tensor::from_slice(&place, &shape, &values);
    let tensor = made.unwrap_or_else(|error| panic!("{shape:?}: {error}"));
    let owner = Pair { tensor, shape, places: (0..count).collect() };
    let (mut stored, mut views, mut steps) = (values, vec![owner], 0);
    while !bytes.0.as_slice().is_empty() && steps < 64 {
        steps += 1;
        let at = bytes.next() % views.len();
        match bytes.next() % 16 {
            14 => write(&views[at], &mut stored, steps),
            15 => copy(&views[at], &views[bytes.next() % views.len()], &mut stored),
            kind => views.extend(step(&views[at], kind, &mut bytes)),
        }
        views.iter().for_each(|view| holds(view, &stored));
        views.truncate(8);
    }
    drop(views);
    assert_eq!(place.allocator().memory_allocated(), 0, "a storage was left");
    steps > 0
}

fn holds(view: &Pair, stored: &[i32]) {
    assert_eq!(view.tensor.shape(), view.shape);
    let held = (view.tensor.storage().bytes() / 4) as usize;
    assert!(view.places.iter().all(|&place| place < held), "X1: the model itself");
    let far = view.tensor.layout().reach().map(|reach| view.tensor.offset() + reach);
    assert!(
        view.places.is_empty() || far.is_some_and(|far| far < held),
        "X1: {:?}",
        view.tensor.layout()
    );
    let values = view.tensor.to_vec::<i32>().unwrap_or_else(|error| panic!("{error}"));
    assert!(values.into_iter().eq(view.places.iter().map(|&place| stored[place])), "other values");
}

/// Whether no element is twice in the list.
fn apart(places: &[usize]) -> bool {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

fn write(view: &Pair, stored: &mut [i32], value: i32) {
    let filled = view.tensor.fill_(-value);
    assert_eq!(filled.is_ok(), apart(&view.places), "{filled:?}");
    if filled.is_ok() {
        view.places.iter().for_each(|&place| stored[place] = -value);
    }
}

fn copy(to: &Pair, from: &Pair, stored: &mut [i32]) {
    let copied = to.tensor.copy_(&from.tensor);
    let Some(spread) = broadcast(from, &to.shape) else {
        return assert!(matches!(copied, Err(TensorError::Broadcast { .. })), "{copied:?}");
    };
    assert_eq!(copied.is_ok(), apart(&to.places), "{copied:?}");
    if copied.is_ok() {
        let values: Vec<i32> = spread.iter().map(|&place| stored[place]).collect();
        to.places.iter().zip(values).for_each(|(&place, value)| stored[place] = value);
    }
}

/// The elements that `pick` chooses for each index of `shape`.
fn picked(shape: &[usize], mut pick: impl FnMut(&[usize]) -> usize) -> Vec<usize> {
    let count: usize = shape.iter().product();
    let mut index = vec![0; shape.len()];
    let one = |number: usize| {
        let mut rest = number;
        for axis in (0..shape.len()).rev() {
            (index[axis], rest) = (rest % shape[axis], rest / shape[axis]);
        }
        pick(&index)
    };
    (0..count).map(one).collect()
}

impl Pair {
    fn at(&self, index: impl Iterator<Item = usize>) -> usize {
        let number = index.zip(&self.shape).fold(0, |sum, (place, size)| sum * size + place);
        self.places[number]
    }
}

fn broadcast(from: &Pair, shape: &[usize]) -> Option<Vec<usize>> {
    let new = shape.len().checked_sub(from.shape.len())?;
    let fits = from.shape.iter().zip(&shape[new..]).all(|(&have, &want)| have == want || have == 1);
    let pick = |index: &[usize]| {
        from.at(index[new..].iter().zip(&from.shape).map(|(&place, &size)| place.min(size - 1)))
    };
    fits.then(|| picked(shape, pick))
}

/// One view, on both sides; none where both refuse.
fn step(view: &Pair, kind: usize, bytes: &mut Bytes<'_>) -> Option<Pair> {
    let (tensor, shape, rank) = (&view.tensor, view.shape.clone(), view.shape.len());
    let axis = bytes.about(rank);
    let size = shape.get(axis).copied();
    let (a, b) = (bytes.about(size.unwrap_or(3)), bytes.about(size.unwrap_or(3)));
    let mut wanted = shape;
    let (made, expected) = match kind {
        0 | 1 => {
            (tensor.narrow(axis, a, b), size.and_then(|size| narrowed(view, axis, size, a, b)))
        }
        2 | 3 => (tensor.slice(axis, a.., b), size.and_then(|size| sliced(view, axis, size, a, b))),
        4 => {
            let one = size.and_then(|size| narrowed(view, axis, size, a, 1));
            (tensor.select(axis, a), one.map(|(shape, places)| (without(&shape, axis), places)))
        }
        5 | 6 => (tensor.transpose(axis, a), size.and_then(|_| swapped(view, axis, a))),
        7 => {
            wanted.retain(|&size| size != 1);
            (tensor.squeeze(), Some((wanted, view.places.clone())))
        }
        8 => {
            let fits = axis <= rank && rank < 8;
            (tensor.unsqueeze(axis), fits.then(|| (with(&wanted, axis, 1), view.places.clone())))
        }
        9 | 10 => {
            if let Some(size) = wanted.get_mut(axis).filter(|size| **size == 1) {
                *size = a.min(6);
            }
            if b % 2 == 1 {
                wanted.insert(0, b.min(3));
            }
            let small = wanted.len() <= 8 && wanted.iter().product::<usize>() < 2000;
            if !small {
                return None;
            }
            let places = broadcast(view, &wanted);
            (tensor.expand(&wanted), places.map(|places| (wanted, places)))
        }
        11 => (tensor.unfold(axis, a, b), size.and_then(|size| unfolded(view, axis, size, a, b))),
        12 => {
            let strides = [a, b];
            let end = 2u128 * a as u128 + 2 * b as u128 + axis as u128;
            let fits = end < u128::from(tensor.storage().bytes() / 4);
            let places = || picked(&[3, 3], |index| axis + index[0] * a + index[1] * b);
            (tensor.as_strided(&[3, 3], &strides, axis), fits.then(|| (vec![3, 3], places())))
        }
        _ => return reshaped(view, a, b),
    };
    match (made, expected) {
        (Ok(tensor), Some((shape, places))) => Some(Pair { tensor, shape, places }),
        (Err(_), None) => None,
        (made, expected) => {
            panic!("{kind} {axis} {a} {b} of {tensor:?}: {made:?}, expected {expected:?}")
        }
    }
}

type Model = (Vec<usize>, Vec<usize>);

fn with(shape: &[usize], axis: usize, size: usize) -> Vec<usize> {
    [&shape[..axis], &[size], &shape[axis..]].concat()
}

fn without(shape: &[usize], axis: usize) -> Vec<usize> {
    [&shape[..axis], &shape[axis + 1..]].concat()
}

/// `count` indices of one axis, the first at `from`, `by` apart.
fn taken(view: &Pair, axis: usize, from: usize, count: usize, by: usize) -> Model {
    let mut shape = view.shape.clone();
    shape[axis] = count;
    let moved = |index: &[usize]| {
        let axes = index.iter().enumerate();
        view.at(axes.map(|(other, &place)| if other == axis { from + place * by } else { place }))
    };
    let places = picked(&shape, moved);
    (shape, places)
}

fn narrowed(view: &Pair, axis: usize, size: usize, from: usize, length: usize) -> Option<Model> {
    let fits = from.checked_add(length).is_some_and(|end| end <= size);
    fits.then(|| taken(view, axis, from, length, 1))
}

fn sliced(view: &Pair, axis: usize, size: usize, from: usize, by: usize) -> Option<Model> {
    (by > 0).then(|| taken(view, axis, from, size.saturating_sub(from).div_ceil(by), by))
}

fn swapped(view: &Pair, axis: usize, other: usize) -> Option<Model> {
    let mut shape = view.shape.clone();
    (other < shape.len()).then(|| shape.swap(axis, other))?;
    let places = picked(&shape, |index| {
        let mut index = index.to_vec();
        index.swap(axis, other);
        view.at(index.into_iter())
    });
    Some((shape, places))
}

fn unfolded(view: &Pair, axis: usize, size: usize, window: usize, by: usize) -> Option<Model> {
    if window > size || by == 0 || view.shape.len() == 8 {
        return None;
    }
    let mut shape = view.shape.clone();
    shape[axis] = (size - window) / by + 1;
    shape.push(window);
    let places = picked(&shape, |index| {
        let inside = index[index.len() - 1];
        let axes = index[..index.len() - 1].iter().enumerate();
        view.at(axes.map(|(other, &place)| if other == axis { place * by + inside } else { place }))
    });
    Some((shape, places))
}

/// A reshape to `[a, rest]` or `[rest, b]`: always possible where the numbers fit, a view or not.
fn reshaped(view: &Pair, a: usize, b: usize) -> Option<Pair> {
    let count = view.places.len();
    let first = if b.is_multiple_of(2) { a } else { b };
    let rest = count.checked_div(first).unwrap_or(0);
    let wanted = if b.is_multiple_of(2) { [first, rest] } else { [rest, first] };
    let fits = first.checked_mul(rest) == Some(count);
    let made = view.tensor.reshape(&wanted);
    if first > 1 << 40 {
        // Not a size: one to be inferred, or beyond any memory even beside a zero. Any answer but a panic.
        return None;
    }
    assert_eq!(made.is_ok(), fits, "{wanted:?} of {:?}: {made:?}", view.tensor);
    // A copy is a storage of its own, of which the model knows nothing.
    let tensor = made.ok().filter(|made| made.shares_storage(&view.tensor))?;
    Some(Pair { tensor, shape: wanted.to_vec(), places: view.places.clone() })
}

#[cfg(test)]
mod tests {
    use super::views;
    use blockyard::lab::rng::Rng;

    #[test]
    fn random_bytes_hold() {
        let mut random = Rng::new(20);
        for _ in 0..4000 {
            let length = random.below(200);
            let bytes: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
            views(&bytes);
        }
    }
}
