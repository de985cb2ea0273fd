// Package index knows which target holds which blocks. It is fed by the engines'
// own events, names blocks by our chained hash of their content, and answers for
// a prompt what each target holds of it from the first token on.
//
// # How blocks lie
//
// The hash of a block covers everything before it, so a chain of blocks never
// joins another again: all chains together are a tree. The tree is cut into rows
// of up to 16 blocks that follow each other, and rows lie in slabs of 1,024:
//
//	prompt   the quick brown | fox jumps over | the lazy dog | and then ...
//	            block 0           block 1          block 2        block 3
//
//	row 7    hash   h0 h1 h2 h3 ... h15        fill 16   next 1: row 8 goes on from here
//	         handle n0 n1 n2 n3 ... n15
//	         sets   {A B}, of all 16 slots alike
//	row 8    hash   h16 h17 h18                fill 3
//	         sets   detail: {A B} {A} {A}
//	row 9    hash   h2' h3'                    up: slot 1 of row 7 (a chain that parts there)
//
// A block is a slot: a row and a position in it. It is found from the block before
// it: it is the next slot of the same row, or the head of a row, which the table of
// heads finds. Each slot has a set of holders. Match goes from row to row, compares
// one hash in each, and intersects the sets where they change.
//
// Engines with pages of less than 16 tokens would need an entry for every few
// tokens. Their pages lie in strips, a tree per lane (pages.go), and 16 tokens of
// pages that are all held make one block of the rows above:
//
//	strip 5  pages p0 p1 p2 ... p15   held 1111111111111111 on the GPU -> slot 3 of row 7
//	strip 6  pages p8' p9'            a fork: it follows p7 of strip 5
//
// So there are two rooms. The rows are Index's own (row, hold, store, remove, match);
// the pages are the type pages, and its tree, which knows no rows, is pageTree. Below
// both lie tables that know nothing of blocks: packages table and pagetable.
//
// # Words
//
//	block     16 or more tokens of a prompt, as its chained hash names them
//	handle    an engine's own name of a block or page, opaque; also just "name"
//	lane      one cache group of one target (and one for its predictions); who holds a
//	          block is a set of lanes. Plain: all that its target has
//	primary   a target's first dense lane, whose names its sliding lanes share
//	plane     in which way a lane holds a block: GPU, host, disk, or inside a chunk
//	chunk     blocks of a lower tier, or the pages of one block, that count only whole:
//	          no credit may end inside
//	set       who holds a slot: (lane, planes) each, interned, so one number says it
//	row, slot up to 16 blocks in a row, and the place of one of them
//	head      the first block of a row, by which the row is found
//	detail    the sets of a row whose slots differ
//	slab      1,024 rows, or 64 strips: memory without pointers
//	detached  a row whose parent's block is in no row (any more)
//	kids      rows, or strips, that follow this one
//	tail      the slot that a lane stored last, where its next store usually goes on
//	tag       29 mixed bits of a handle or hash, under which tables have it
//	common    the table of names that several lanes use; otherwise a lane has its own
//	alias     a name of a block that isn't the one its row has for it
//	page      less than 16 tokens of an engine, as it names them
//	strip     pages that follow each other inside one block's worth of tokens
//	place     of a page in its block: 0 to 15
//	fork      a strip that leaves another inside a block; only: the one strip that
//	          follows a whole block
//	root      where the chains of one key (salt, adapter) begin
//	piece     8 KB of a table of pages
//	run       consecutive blocks of one event that are to be stored
//	unit      tokens at which a run is hashed
//	orphan    a store whose parent isn't known yet; it waits, and joins when it comes
//	aging     in which order a lane stored what a TierLimit makes it forget
//	window    how many blocks a sliding lane must hold before a match may end
//	work      scratch memory of one event; scratch: of one lookup
//	walk      following a prompt through the rows; it notes spans, where sets change
//	span      blocks of a prompt that the same set holds
//	closer    the second look at targets that aren't plain, over the noted spans
//	ends      how far a lane holds a chain, per tier; the sum of them is an Overlap
//	retired   let go by the writer, but a reader may still look at it
//	told      how many copies are left, as the engine said
//	fact      what an engine reported; it ends the prediction of the same block
//
// # Invariants
//
// They hold whenever no event is half done; code that relies on one cites it, and
// builds with the tag invariants check those marked * after events (check.go).
//
//	U1*  A block is in one slot at most, and every row in use is in the table of heads
//	     by its first hash, once.
//	U2   The blocks of a row follow each other in one chain: where the hash of a slot
//	     is a prompt's, those of all slots before it are.
//	U3*  A row is in use while anybody holds any of its blocks; live says which slots
//	     are held. A slot that nobody holds has no name, alias or copies.
//	U4*  A row knows the slot of its parent by up, while upGen is that row's gen, and
//	     is counted in its kids; if the parent is in no row, it is counted in detached.
//	     next says that the row behind is the child of the last slot.
//	U5   What fill covers is written before fill, and never changes while the row is
//	     in use; a reader loads fill first.
//	U6*  What a reader may still see is retired, and used again only when all readers
//	     that could have seen it have left.
//	U7*  Equal sets have equal numbers; refs is how many slots have the set.
//	U8*  count of a lane is how many blocks (of a sliding lane: names) it holds by tier.
//	U9*  groups of a lane covers all rows where it holds a block.
//	U10* A lane that isn't plain is in special before it holds the first block.
//	U11* In a dense lane names and held blocks, or pages, are one to one.
//	U12* The names of a row are all in one table, by which they are found: a lane's own,
//	     and then that lane holds these blocks by these names, or the common one.
//	U13* Copies are counted beyond the first, of planes that are held, and extra has the
//	     slot's bit.
//	U14* A lane with pages holds a block in a tier exactly if it holds all its pages. (Two
//	     paths of pages to one block, which only a forged snapshot has, give it once.)
//	U15* The last page of a strip is held, or something follows it; so does something
//	     every root.
//	U16* What belongs to a lane's pages is found: pages by name, strips by their first
//	     page, forks by the page before them, roots by their hash; the table has no more.
//	U17* The blocks that a lane with pages holds in one row lie on one path of its tree,
//	     in order, and the table leads to the last of them.
//	U18* What counts against MaxBytes, and the numbers of Stats, are what there is.
//	U19* The parent of an orphan isn't known to its lane; orphans stay within bounds.
package index
