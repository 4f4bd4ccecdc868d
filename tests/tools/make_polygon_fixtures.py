"""Cells that OpenCV's fillPoly sets, for src/data/nuscenes/fill_polygon_test.cpp: `python make_polygon_fixtures.py > tests/fixtures/polygons/cells.txt`
(opencv-python-headless 4.11). A line is rows, columns, the corners as column,row and the map's rows as hexadecimal numbers."""
import cv2
import numpy as np

draw = np.random.default_rng(7)
for item in range(160):
    rows, columns = [(24, 24), (20, 32)][item % 2]
    if item % 4 < 3:  # boxes, also across the border and beyond
        middle, angle = draw.uniform(-6, max(rows, columns) + 6, 2), draw.uniform(0, 7)
        along = np.array([np.cos(angle), np.sin(angle)]) * draw.uniform(0.2, 16)
        across = np.array([-along[1], along[0]]) / np.linalg.norm(along) * draw.uniform(0.2, 5)
        corners = np.array([middle + along + across, middle + along - across, middle - along - across, middle - along + across])
    else:
        corners = draw.uniform(-20, 44, (draw.integers(3, 7), 2))
    corners = np.round(corners).astype(np.int32)
    cells = np.zeros((rows, columns), np.float32)
    cv2.fillPoly(cells, [corners], 1.0)
    numbers = ["%x" % int("".join("1" if c else "0" for c in row), 2) for row in cells]
    print(rows, columns, " ".join(f"{x},{y}" for x, y in corners), ":", " ".join(numbers))
