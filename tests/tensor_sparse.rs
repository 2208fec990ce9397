//! Sparse: COO and CSR against dense matrices.
#![allow(missing_docs, clippy::unwrap_used)]

use blockyard::device::SimConfig;
use blockyard::tensor::sparse::{Coo, Csr};
use blockyard::tensor::{DType, Place, Tensor, TensorError};
use blockyard::vocab::MIB;
use ndarray::Array2;
use proptest::prelude::*;

fn matrix(dense: &Tensor) -> Array2<f64> {
    let shape = (dense.shape()[0], dense.shape()[1]);
    Array2::from_shape_vec(shape, dense.to_vec().unwrap()).unwrap()
}

type Entries = Vec<(i64, i64, i64)>;

fn matrices() -> impl Strategy<Value = ([usize; 2], Entries)> {
    (1usize..7, 1usize..7).prop_flat_map(|(rows, columns)| {
        let entry = (0..rows as i64, 0..columns as i64, -5i64..6);
        (Just([rows, columns]), prop::collection::vec(entry, 0..20))
    })
}

fn coo(place: &Place, shape: [usize; 2], entries: &Entries, short: bool) -> Coo {
    let [row, column]: [Vec<i64>; 2] = [
        entries.iter().map(|entry| entry.0).collect(),
        entries.iter().map(|entry| entry.1).collect(),
    ];
    let values: Vec<f64> = entries.iter().map(|entry| entry.2 as f64).collect();
    if short {
        let [row, column] =
            [row, column].map(|list| list.iter().map(|&i| i as i32).collect::<Vec<_>>());
        return Coo::from_slices(place, shape, &row, &column, &values).unwrap();
    }
    Coo::from_slices(place, shape, &row, &column, &values).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_way_leads_to_the_same_matrix((shape, entries) in matrices(), short in any::<bool>()) {
        let place = Place::host();
        let sparse = coo(&place, shape, &entries, short);
        let mut expected = Array2::<f64>::zeros((shape[0], shape[1]));
        entries.iter().for_each(|&(row, column, value)| expected[[row as usize, column as usize]] += value as f64);
        prop_assert_eq!(&matrix(&sparse.to_dense().unwrap()), &expected);
        let whole = sparse.coalesce().unwrap();
        let mut seen: Vec<_> = entries.iter().map(|entry| (entry.0, entry.1)).collect();
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(whole.stored(), seen.len());
        let csr = sparse.to_csr().unwrap();
        prop_assert_eq!(&matrix(&csr.to_dense().unwrap()), &expected);
        let back = csr.to_coo().unwrap();
        prop_assert!(back.row().same_values(whole.row()).unwrap() && back.is_coalesced());
        prop_assert_eq!(back.row().dtype(), sparse.row().dtype());
        let checked = Csr::new(shape, csr.starts().clone(), csr.column().clone(), csr.values().clone());
        prop_assert!(checked.is_ok());
        let again = Coo::from_dense(&sparse.to_dense().unwrap()).unwrap();
        prop_assert_eq!(&matrix(&again.to_dense().unwrap()), &expected);
        prop_assert_eq!(again.stored(), expected.iter().filter(|value| **value != 0.0).count());
    }

    #[test]
    fn the_product_is_ndarrays((shape, entries) in matrices(), columns in 0usize..5, turned in any::<bool>()) {
        let place = Place::host();
        let sparse = coo(&place, shape, &entries, turned);
        let count = (shape[1] * columns) as i64;
        let x = Tensor::arange(&place, 0, count, 1).unwrap().to(&place, DType::F64, false).unwrap();
        let x = if turned {
            x.view(&[columns, shape[1]]).unwrap().transpose(0, 1).unwrap()
        } else {
            x.view(&[shape[1], columns]).unwrap()
        };
        let product = sparse.matmul(&x).unwrap();
        prop_assert_eq!(matrix(&product), matrix(&sparse.to_dense().unwrap()).dot(&matrix(&x)));
    }
}

#[test]
fn memory_is_that_of_three_storages() {
    let place = Place::host();
    let sparse = coo(&place, [100, 100], &(0..1000).map(|i| (i % 100, i / 100, 1)).collect(), true);
    assert_eq!(sparse.bytes(), 1000 * (4 + 4 + 8));
    assert_eq!(place.allocator().memory_allocated(), 2 * 4096 + 8192);
    let csr = sparse.to_csr().unwrap();
    drop(sparse);
    assert_eq!(csr.bytes(), 101 * 4 + 1000 * 12);
    assert_eq!(place.allocator().memory_allocated(), 512 + 4096 + 8192);
}

#[test]
fn parts_that_contradict_each_other_are_refused() {
    let place = Place::host();
    let text = |done: Result<Coo, TensorError>| done.unwrap_err().to_string();
    let from =
        |row: &[i64], column: &[i64]| Coo::from_slices(&place, [2, 3], row, column, &[1.0f32, 2.0]);
    assert_eq!(text(from(&[0, 2], &[0, 0])), "sparse: row 1 is 2, outside 0..2");
    assert_eq!(text(from(&[0, 1], &[-1, 0])), "sparse: column 0 is -1, outside 0..3");
    assert_eq!(text(from(&[0], &[0, 1])), "sparse: rows have shape [1], expected [2]");
    let csr = |starts: &[i64], column: &[i64]| {
        let tensor = |values: &[i64]| Tensor::from_slice(&place, &[values.len()], values).unwrap();
        let values = Tensor::full(&place, &[column.len()], 1.0f64).unwrap();
        Csr::new([2, 3], tensor(starts), tensor(column), values).map_err(|error| error.to_string())
    };
    assert!(csr(&[0, 1, 2], &[2, 0]).is_ok());
    assert_eq!(csr(&[0, 2, 2], &[2, 0]).unwrap_err(), "sparse: the columns of row 0 do not rise");
    assert_eq!(csr(&[0, 3, 2], &[2, 0]).unwrap_err(), "sparse: row starts do not rise from 0 to 2");
    let sim = Place::sim(SimConfig::with_capacity(64 * MIB));
    let there = Tensor::zeros(&sim, &[3, 1], DType::F64).unwrap();
    let error = csr(&[0, 1, 2], &[2, 0]).unwrap().matmul(&there).unwrap_err();
    assert_eq!(error.to_string(), "expected all tensors on the same device: host and sim");
}

#[test]
fn indices_that_were_changed_later_are_an_error_and_no_crash() {
    let place = Place::host();
    let csr = coo(&place, [2, 2], &vec![(0, 0, 1), (1, 1, 1)], false).to_csr().unwrap();
    csr.column().fill_(9).unwrap();
    let x = Tensor::zeros(&place, &[2, 2], DType::F64).unwrap();
    assert!(csr.matmul(&x).is_err() && csr.to_dense().is_err());
}

#[test]
fn a_simulated_matrix_is_accounted_and_multiplied_without_values() {
    let sim = Place::sim(SimConfig::with_capacity(64 * MIB));
    let parts = |count: usize, dtype| Tensor::zeros(&sim, &[count], dtype).unwrap();
    let csr = Csr::new([10, 10], parts(11, DType::I32), parts(5, DType::I32), parts(5, DType::F32))
        .unwrap();
    let x = Tensor::zeros(&sim, &[10, 4], DType::F32).unwrap();
    assert_eq!(csr.matmul(&x).unwrap().shape(), [10, 4]);
    assert!(csr.to_dense().is_err());
}

#[test]
fn rows_beyond_any_memory_are_an_error() {
    let coo = Coo::from_slices(&Place::host(), [1 << 58, 2], &[5_i64], &[0], &[1_f32]).unwrap();
    assert!(coo.to_csr().is_err());
}
