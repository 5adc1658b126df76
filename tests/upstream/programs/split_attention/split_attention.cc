// How a step's attention is spread over a GPU of SMS multiprocessors, by the functions that the patch adds.
// split_attention SMS BATCH HEADS SIZE TIMESTEP...: for each, the blocks of a head, the length that sets their threads, and
// whether these blocks hold the keys of every shorter row, with the shared memory of the longest one.

#include <algorithm>
#include <cstdio>
#include <cstdlib>

static int sms;

constexpr int MAX_SPLIT_BLOCKS = 8192, MIN_SPLIT_KEYS = 128;
enum { cudaDevAttrMultiProcessorCount };

static int cudaGetDevice(int* device)
{
    *device = 0;
    return 0;
}

static int cudaDeviceGetAttribute(int* value, int, int)
{
    *value = sms;
    return 0;
}

#include "added.inc"

#define __device__
#define __host__
using std::max;

static int div_up(const int m, const int n)
{
    return (m + n - 1) / n;
}

#include "keys.inc"

// A block of a row with `keys` cached ones takes at most keys_per_block of them, and the last one the current key, too.
static bool holds(const int timestep, const int splits)
{
    for (int keys = 0; keys <= timestep; keys += 1 + keys / 97) {
        const int own    = keys_per_block(keys, splits);
        const int blocks = splits <= 1 ? 1 : keys / own + 1;
        const int last   = keys - (blocks - 1) * own + 1;
        if (blocks > std::max(1, splits) || last > keys_per_block(timestep, splits) + 1
            || own > keys_per_block(timestep, splits)) {
            return false;
        }
    }
    return true;
}

int main(int, char** words)
{
    sms             = std::atoi(words[1]);
    const int batch = std::atoi(words[2]), heads = std::atoi(words[3]), size = std::atoi(words[4]);
    for (char** word = words + 5; *word != nullptr; word++) {
        const int timestep = std::atoi(*word);
        const int splits   = masked_multihead_attention_key_splits(batch, heads, size, timestep);
        std::printf("%d %d %d\n",
                    splits,
                    masked_multihead_attention_block_length(batch, heads, size, timestep, splits),
                    holds(timestep, splits));
    }
}
