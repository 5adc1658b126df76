#pragma once

namespace cutlass { namespace reference {

template<typename T>
constexpr T divide_up(T value, T by)
{
    return (value + by - 1) / by;
}

}}  // namespace cutlass::reference
