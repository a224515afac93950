"""Apply models to collections of thousands of videos, one file per video, with Apache Beam."""
