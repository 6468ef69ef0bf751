"""Horizontal and vertical placement of the blocks of a drawing."""

from __future__ import annotations

from hilserver.drawing.blocks import Block
from hilserver.drawing.lines import Lines, set_tracks

GAP, TRACK, MARGIN = 18.0, 22.0, 20.0
"""Between two blocks of a row; between two lines of a zone; around everything."""


def place_across(all_blocks: list[Block], lines: Lines) -> None:
    """Place blocks horizontally: near what they are connected to, without overlap."""
    rows = _rows(all_blocks)
    for blocks in rows.values():
        blocks.sort(key=lambda block: not block.items)
        _spread(blocks, [0.0] * len(blocks))
    for sweep in range(12):
        for row in sorted(rows, reverse=bool(sweep % 2)):
            wanted = {id(block): _wanted(block, lines) for block in rows[row]}
            if sweep < 8 and row > 0:
                rows[row].sort(key=lambda block: wanted[id(block)] + block.width / 2)
            _spread(rows[row], [wanted[id(block)] for block in rows[row]])
    left = min((block.x for block in all_blocks), default=0.0)
    for block in all_blocks:
        block.x = round(block.x - left + MARGIN)


def _wanted(block: Block, lines: Lines) -> float:
    """The place at which a block's lines would be straight: the nearest one within the other ends of each."""
    moves = []
    for pin in block.pins:
        line = lines[block.row + pin.up][pin.node]
        here = block.x + pin.x
        others = [b.x + p.x for b, p in (*line.below, *line.above) if b is not block]
        if others:
            moves.append(min(max(here, min(others)), max(others)) - here)
    return block.x + (sum(moves) / len(moves) if moves else 0.0)


def place_upwards(all_blocks: list[Block], lines: Lines) -> float:
    """Set the heights of blocks and lines; returns the total height."""
    rows, y = _rows(all_blocks), MARGIN
    for row in range(max((*rows, *lines), default=0), -1, -1):
        blocks = rows.get(row, [])
        height = max((block.height for block in blocks), default=0.0)
        for block in blocks:
            block.y = y if block.hangs else y + height - block.height
        zone = list(lines.get(row, {}).values())
        tracks = set_tracks(zone)
        y += height + (TRACK * (tracks + 1) if zone else 0.0)
        for line in zone:
            line.y = y - TRACK * (line.track + 1)
    return y


def _rows(blocks: list[Block]) -> dict[int, list[Block]]:
    rows: dict[int, list[Block]] = {}
    for block in blocks:
        rows.setdefault(block.row, []).append(block)
    return dict(sorted(rows.items()))


def _spread(blocks: list[Block], wanted: list[float]) -> None:
    """Places in this order, nearest to the wanted ones (least squares), with gaps: pools of neighbours that touch."""
    offsets, at = [], 0.0
    for block in blocks:
        offsets.append(at)
        at += block.width + GAP
    pools: list[tuple[float, int]] = []  # mean, count
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        pools.append((mean, count))
    means = [mean for mean, count in pools for _ in range(count)]
    for block, mean, offset in zip(blocks, means, offsets, strict=True):
        block.x = mean + offset
