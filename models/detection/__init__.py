"""Faster R-CNN, which learns from boxes, and boxes from the maps of FCN, which learns from labels of frames alone.

FCN itself is one of `models.systems.SYSTEMS`; its features and its head are in `models.backbones.maps`.
"""
