/* Memory that can be taken away under its registration: ways to make it and to take it. */
#ifndef CROCEVIA_TEST_GONE_H
#define CROCEVIA_TEST_GONE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/mman.h>

#include "common.h"

#define PAGES 4
#define SIZE (PAGES * 4096)

enum way { UNMAP, PROTECT, READ_ONLY, TRUNCATE, WAYS };
static const char *const way_names[] = { "unmap", "protect", "read only", "truncate" };

struct piece {
	char *at;
	int fd;
	struct ibv_mr *mr;
};

static inline struct piece make_piece(struct ibv_pd *pd, enum way way)
{
	struct piece piece = { .fd = -1 };
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	if (way == TRUNCATE) {
		piece.fd = memfd_create("piece", MFD_CLOEXEC);
		CHECK(piece.fd >= 0 && ftruncate(piece.fd, SIZE) == 0);
		flags = MAP_SHARED;
	}
	piece.at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, piece.fd, 0);
	CHECK(piece.at != MAP_FAILED);
	memset(piece.at, 0x11, SIZE);
	piece.mr = ibv_reg_mr(pd, piece.at, SIZE, ALL_ACCESS);
	CHECK(piece.mr);
	return piece;
}

/* Takes all but the first page away. */
static inline void take(struct piece *piece, enum way way)
{
	char *at = piece->at + 4096;
	size_t size = SIZE - 4096;
	if (way == UNMAP)
		CHECK(munmap(at, size) == 0);
	else if (way == TRUNCATE)
		CHECK(ftruncate(piece->fd, 4096) == 0);
	else
		CHECK(mprotect(at, size, way == PROTECT ? PROT_NONE : PROT_READ) == 0);
}

static inline void end_piece(struct piece *piece)
{
	CHECK(ibv_dereg_mr(piece->mr) == 0);
	munmap(piece->at, SIZE);
	if (piece->fd >= 0)
		close(piece->fd);
}

#endif
