"""Systems that say where tools are: Faster R-CNN, which learns from boxes, and FCN, from the tools of frames alone.

FCN is one of `models.systems.SYSTEMS`, with the head and the features of `models.detection.maps`.
"""
