// How a step's attention is spread over a GPU of SMS multiprocessors, by the functions that the patch adds.
// split_attention SMS BATCH HEADS SIZE TIMESTEP...: for each, the blocks of a head and the length that sets their threads.

#include <cstdio>
#include <cstdlib>

static int sms;

constexpr int MAX_SPLIT_BLOCKS = 2048;
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

int main(int, char** words)
{
    sms             = std::atoi(words[1]);
    const int batch = std::atoi(words[2]), heads = std::atoi(words[3]), size = std::atoi(words[4]);
    for (char** word = words + 5; *word != nullptr; word++) {
        const int timestep = std::atoi(*word);
        const int splits   = masked_multihead_attention_key_splits(batch, heads, size, timestep);
        std::printf("%d %d\n", splits, masked_multihead_attention_block_length(batch, heads, size, timestep, splits));
    }
}
