package kv

import (
	"fmt"
	"strings"
	"testing"
)

// TestHashesAreForGood compares hashes with those that were printed once. An index that
// was kept over a restart holds hashes: a function that gives others makes all of that
// phantom blocks. Who changes it on purpose raises snapshotVersion of index and
// prints these anew.
func TestHashesAreForGood(t *testing.T) {
	var got strings.Builder
	for _, seed := range []Seed{0, 5, 1 << 63} {
		fmt.Fprintf(&got, "seed %x:", uint64(seed))
		for _, k := range []Key{{}, {Model: "m"}, {LoRA: "m"}, {Salt: "m"}, {Model: "12345678", LoRA: "123456789", Salt: "a longer salt than a word"}} {
			fmt.Fprintf(&got, " %016x", uint64(seed.Root(k, 16)))
		}
		fmt.Fprintf(&got, " %016x %016x %016x\n", uint64(seed.Root(Key{}, 32)), seed.Extra("image", 0), seed.Extra("image", -7))
		root := seed.Root(Key{}, 16)
		for _, size := range []int{1, 15, 16, 24, 32, 48} {
			fmt.Fprintf(&got, " %d:", size)
			for _, extras := range [][]Extra{nil, {{Block: 0, Digest: 1}, {Block: 1, Digest: 2}, {Block: 1, Digest: 3}}} {
				for _, h := range seed.Extend(nil, root, ramp(2*size+size/2), size, extras) {
					fmt.Fprintf(&got, " %016x", uint64(h))
				}
			}
			got.WriteByte('\n')
		}
	}
	if got.String() != golden {
		t.Errorf("the hashes are others:\n%s", got.String())
	}
}

const golden = `seed 0: e00cb3e5f6850f5d be6ba981cb297b07 159c9530730bc6a4 b1be9d34abd2335f 184e08f1d2ffb414 bd5a048460933cf7 e7716c23de4e375f 168c7c831ad3ff73
 1: 187fed95c0ca7102 cd4e00914cfd350a f3712b59abf17707 2772a1eaf64db243
 15: 9173adde1cbfb02c 8bfb0b0230089e8a 6d1db5e55a778b49 1e5b99aa15bc0d9e
 16: 7681f63e70b55851 eb5a294ccfe05cc1 55f23edd834ef3fd a5fc54f1ba581af4
 24: a0913188a85b04a5 1e884f45a96cfa1b ae53eb6ff7624274 30731a040bfa990a
 32: 4eba485cb3463d03 59e250326815dc0c 6dbd7293f72ce098 924bdcc2b1ba63b6
 48: afeefa1cd6058d26 0640b7f4f8f9fc45 a3b07e514e7ddec8 b74b5132c6aa1c42
seed 5: 4004d5dfffe3b275 6eac305067639ea9 89ca26ff16bcfd93 fe6b24da75974c04 3345ca7ebc0c5066 633433f1a00893d4 3cc1ab11e0238713 6363662177d0b3ec
 1: f321ad286b34612e e1ebb8ea536c8b4a 311ffb5921294026 7d489caedd3c36f1
 15: d9fe9c93d7dd9403 b89f7c1c2296415e e2d1e897abf1e0e7 a9d580ce16cbecd4
 16: 83d83640a5844327 2a3a6eec6c2c209d 9ffa4a543e48f8e1 d2306118a4ad260c
 24: df902e336f08af0e 865078d8a32510eb 7ce1c8d9378a5915 716a21765edda6dd
 32: dbc540a1cff380ff d6224f0ee8b3a839 dc2d0b5427bd033e 3d0a622c7704f3d1
 48: 0fdf77e814776d64 e80259474bb255cc d138a6912c8a8685 39dbdce5e295e1b3
seed 8000000000000000: 119f9e9ce2f8bf3a 5ca7fc8078f59194 ffe6dea32d4671b7 9832fc04c42f5b64 004e041a52d8b6d6 814f9a987933bc69 073c80e98e82eddd f8dc7916385d1214
 1: bb27f99db8b4fae1 a5795f9f1f56c6a2 7961056873967c3a d069cf1d65c2d507
 15: d8345fe0086ce964 c7a43daf301f99b3 4c8722141d5b311e 1684d30f8d1e4265
 16: 7a88481bc976ce89 e46b1f51242029f3 e8d445740c84c38b 10e583b2818d66c6
 24: ae91b09349c93c12 b7723fd2fdc7845c b3ce244b6266454d b3738c1cf176f000
 32: d55ffa9be51d068f 98ca846a569ff867 1a7b1d3c6ee7597e 42a8c3ab66243fc0
 48: c22409ddb4b45b7e bad58f8b270d18ea 7f30efe843a8975b 86cc3366ce544795
`

// Blocks of no size: there are none to add.
func TestExtendWithoutSize(t *testing.T) {
	for _, size := range []int{0, -1} {
		if got := Seed(5).Extend([]Hash{7}, 9, ramp(64), size, nil); len(got) != 1 || got[0] != 7 {
			t.Errorf("size %d: %v, want what was there", size, got)
		}
	}
}
