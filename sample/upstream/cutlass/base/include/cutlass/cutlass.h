#pragma once

namespace cutlass {

// Index of element (row, column) in a row-major matrix.
struct RowMajor {
    int columns;
    constexpr int operator()(int row, int column) const { return row * columns + column; }
};

}  // namespace cutlass
